"""Rules of access through our Admin and confluent-kafka's AdminClient, on a broker with an authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import confluent_kafka.admin as theirs
import pytest

from braidlog.client.admin import Admin
from braidlog.security.acls import (
    Acl,
    AclFilter,
    AclOperation,
    AclResourceType,
    PatternType,
    Permission,
)
from support import confluent
from support.broker import Broker, start_braidlog

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
SECONDS = 30
READ = Acl(AclResourceType.TOPIC, "orders", "User:ann", AclOperation.READ)
PREFIXED = Acl(
    AclResourceType.TRANSACTIONAL_ID, "shop-", "User:*", AclOperation.WRITE, pattern_type=PatternType.PREFIXED
)
DENIED = Acl(AclResourceType.GROUP, "g", "User:bob", AclOperation.READ, Permission.DENY, "10.0.0.1")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with start_braidlog(tmp_path_factory.mktemp("guarded"), SETTINGS) as broker:
        yield broker
        assert broker.stop() == 0


def binding(kind: Any, name: str, pattern: Any, who: str, host: str, operation: Any, permission: Any) -> Any:
    return theirs.AclBinding(kind, name, pattern, who, host, operation, permission)


def anything() -> Any:
    return theirs.AclBindingFilter(
        theirs.ResourceType.ANY, None, theirs.ResourcePatternType.ANY, None, None,
        theirs.AclOperation.ANY, theirs.AclPermissionType.ANY,
    )  # fmt: skip


def test_both_clients_see_the_same_rules(guarded: Broker) -> None:
    confluents = confluent.admin(guarded.bootstrap)
    read = binding(
        theirs.ResourceType.TOPIC, "orders", theirs.ResourcePatternType.LITERAL, "User:ann", "*",
        theirs.AclOperation.READ, theirs.AclPermissionType.ALLOW,
    )  # fmt: skip
    denied = binding(
        theirs.ResourceType.GROUP, "g", theirs.ResourcePatternType.LITERAL, "User:bob", "10.0.0.1",
        theirs.AclOperation.READ, theirs.AclPermissionType.DENY,
    )  # fmt: skip
    with Admin(bootstrap_servers=guarded.bootstrap) as ours:
        for future in confluents.create_acls([read, denied]).values():
            assert future.result(SECONDS) is None
        ours.create_acls([PREFIXED, READ]).raise_for_errors()
        assert ours.describe_acls() == sorted([READ, PREFIXED, DENIED])
        seen = confluents.describe_acls(anything()).result(SECONDS)
        assert {(each.name, each.principal, each.host) for each in seen} == {
            ("orders", "User:ann", "*"), ("shop-", "User:*", "*"), ("g", "User:bob", "10.0.0.1"),
        }  # fmt: skip
        which = theirs.AclBindingFilter(
            theirs.ResourceType.GROUP, None, theirs.ResourcePatternType.ANY, None, None,
            theirs.AclOperation.ANY, theirs.AclPermissionType.DENY,
        )  # fmt: skip
        (gone,) = confluents.delete_acls([which]).values()
        assert gone.result(SECONDS) == [denied]
        assert ours.delete_acls([AclFilter()])[AclFilter()] == tuple(sorted([READ, PREFIXED]))
        assert confluents.describe_acls(anything()).result(SECONDS) == []
