"""Rules as Kafka 3.9 keeps them in ZooKeeper: paths, JSON and notifications."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.broker.authorization.acl_records import (
    RESOURCE_TYPES,
    acl_change,
    acl_path,
    changed_pattern,
    decode_acls,
    encode_acls,
    is_name,
)
from braidlog.cluster.records import BadRecordError
from braidlog.security.acls import Acl, AclOperation, AclResourceType, PatternType, Permission, ResourcePattern

ORDERS = ResourcePattern(AclResourceType.TOPIC, "orders", PatternType.LITERAL)
PREFIX = ResourcePattern(AclResourceType.TRANSACTIONAL_ID, "shop-", PatternType.PREFIXED)
# Read from a Kafka 3.9.1's ZooKeeper.
KAFKAS = (
    b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"},'
    b'{"principal":"User:CN=a,O=b","permissionType":"Deny","operation":"IdempotentWrite","host":"10.0.0.1"}]}'
)


def test_kafkas_node_is_read_and_written() -> None:
    read = decode_acls(ORDERS, KAFKAS)
    alice = Acl(AclResourceType.TOPIC, "orders", "User:alice", AclOperation.READ)
    denied = Acl(
        AclResourceType.TOPIC, "orders", "User:CN=a,O=b", AclOperation.IDEMPOTENT_WRITE, Permission.DENY, "10.0.0.1"
    )
    assert read == {alice, denied}
    assert json.loads(encode_acls([alice, denied])) == json.loads(KAFKAS)
    assert decode_acls(ORDERS, b"") == frozenset()


def test_paths_are_kafkas() -> None:
    assert acl_path(ORDERS) == "/kafka-acl/Topic/orders"
    assert acl_path(PREFIX) == "/kafka-acl-extended/prefixed/TransactionalId/shop-"
    token = ResourcePattern(AclResourceType.DELEGATION_TOKEN, "a%2Fb c", PatternType.LITERAL)
    assert acl_path(token) == "/kafka-acl/DelegationToken/a%2Fb c"


def test_notifications_are_kafkas() -> None:
    literal = acl_change(ORDERS)
    assert (literal.path, literal.data, literal.sequential) == (
        "/kafka-acl-changes/acl_changes_", b"TOPIC:orders", True,
    )  # fmt: skip
    prefixed = acl_change(PREFIX)
    assert prefixed.path == "/kafka-acl-extended-changes/acl_changes_"
    assert json.loads(prefixed.data) == {
        "version": 1, "resourceType": "TRANSACTIONAL_ID", "name": "shop-", "patternType": "PREFIXED",
    }  # fmt: skip
    # Before Kafka 2.0.
    assert changed_pattern("/kafka-acl-changes/acl_changes_0000000001", b"Topic:orders") == ORDERS


@pytest.mark.parametrize(
    "data",
    [
        b"{", b"[]", b"\xff", b'{"version":2,"acls":[]}', b'{"acls":[]}', b'{"version":1}', b'{"version":1,"acls":{}}',
        b'{"version":1,"acls":["x"]}', b'{"version":1,"acls":[{}]}',
        KAFKAS.replace(b"Read", b"Fly"), KAFKAS.replace(b"Read", b"Any"), KAFKAS.replace(b"Deny", b"Perhaps"),
        KAFKAS.replace(b"Deny", b"Unknown"), KAFKAS.replace(b"User:alice", b"alice"), KAFKAS.replace(b'"*"', b"1"),
    ],
)  # fmt: skip
def test_what_kafka_did_not_write_is_no_rule(data: bytes) -> None:
    with pytest.raises(BadRecordError, match="/kafka-acl/Topic/orders: "):
        decode_acls(ORDERS, data)


@pytest.mark.parametrize("data", [b"", b"TOPIC", b"TOPIC:", b"Any:x", b"Unknown:x", b"Thing:x", b"\xff:x"])
def test_a_notification_that_names_nothing(data: bytes) -> None:
    with pytest.raises(BadRecordError):
        changed_pattern("/kafka-acl-changes/acl_changes_0000000001", data)


@pytest.mark.parametrize(
    "data",
    [
        b"TOPIC:orders", b"{}", b'{"version":1,"resourceType":"TOPIC","name":"a","patternType":"MATCH"}',
        b'{"version":1,"resourceType":"ANY","name":"a","patternType":"PREFIXED"}',
    ],
)  # fmt: skip
def test_a_notification_of_prefixes_that_names_nothing(data: bytes) -> None:
    with pytest.raises(BadRecordError):
        changed_pattern("/kafka-acl-extended-changes/acl_changes_0000000001", data)


NAMES = st.text(st.characters(codec="utf-8"), min_size=1).filter(is_name)
PATTERNS = st.builds(
    ResourcePattern,
    st.sampled_from(RESOURCE_TYPES),
    NAMES,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
)


@given(PATTERNS)
def test_a_notification_names_what_changed(pattern: ResourcePattern) -> None:
    change = acl_change(pattern)
    assert changed_pattern(f"{change.path}0000000007", change.data) == pattern


@given(
    PATTERNS,
    st.frozensets(
        st.tuples(
            st.text(st.characters(codec="utf-8")),
            st.sampled_from([each for each in AclOperation if each > AclOperation.ANY]),
            st.sampled_from([Permission.ALLOW, Permission.DENY]),
            st.text(st.characters(codec="utf-8")),
        )
    ),
)
def test_rules_are_read_as_they_were_written(
    pattern: ResourcePattern, entries: frozenset[tuple[str, AclOperation, Permission, str]]
) -> None:
    rules = frozenset(
        Acl(pattern.resource_type, pattern.name, f"User:{who}", operation, permission, host, pattern.pattern_type)
        for who, operation, permission, host in entries
    )
    assert decode_acls(pattern, encode_acls(rules)) == rules


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/", "a\x01", "a\n", "\0"])
def test_what_no_node_is_called(name: str) -> None:
    assert not is_name(name)
    assert is_name(f"a{name}".replace("/", "").replace("\n", "").replace("\x01", "").replace("\0", ""))
