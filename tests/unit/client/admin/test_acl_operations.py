from __future__ import annotations

from braidlog.broker.handlers.authorized_operations import AUTHORIZED_OPERATIONS_OMITTED, GROUP_OPERATIONS
from braidlog.client.admin.acl_operations import AclOperation, operations_of


def test_bits_are_operations_by_their_number() -> None:
    assert operations_of(GROUP_OPERATIONS) == {AclOperation.READ, AclOperation.DELETE, AclOperation.DESCRIBE}
    assert operations_of(0) == frozenset()
    assert operations_of(0b11) == frozenset()


def test_a_broker_that_does_not_say_says_nothing() -> None:
    assert operations_of(AUTHORIZED_OPERATIONS_OMITTED) is None


def test_a_number_of_a_later_version_is_unknown() -> None:
    assert AclOperation(99) is AclOperation.UNKNOWN
