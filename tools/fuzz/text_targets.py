"""Texts: what lies in znodes, in settings, and what members of groups send as bytes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

from braidlog.broker.authorization.acl_records import acl_change, changed_pattern, decode_acls, encode_acls
from braidlog.cluster import paths, records
from braidlog.cluster.records import BadRecordError, BrokerRecord, FeaturesRecord, PartitionStateRecord, TopicRecord
from braidlog.cluster.token_records import TokenInformation, decode_token, encode_token
from braidlog.cluster.zookeeper.connection_settings import parse_connect
from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.config.checks import connection_overrides
from braidlog.config.listeners import parse_listeners
from braidlog.config.properties import PropertiesError, parse_properties
from braidlog.config.sources import load_settings
from braidlog.coordinator.group.classic.consumer_protocol import parse_subscription
from braidlog.coordinator.group.consumer.classic_assignment import parse_assignment
from braidlog.coordinator.group.consumer.patterns import Pattern
from braidlog.coordinator.group.topics import TopicFacts
from braidlog.core.errors import UserError
from braidlog.core.principal import Principal
from braidlog.core.protocol_errors import InvalidConfigError, InvalidRegularExpressionError
from braidlog.core.types import BrokerId, Endpoint, TopicPartition
from braidlog.security.acls import (
    Acl,
    AclOperation,
    AclResourceType,
    AclRules,
    PatternType,
    Permission,
    Resource,
    ResourcePattern,
)
from braidlog.security.jaas import parse_jaas
from braidlog.security.kerberos_names import NoMatchingPrincipalRuleError, parse_principal_rules
from braidlog.security.ssl_principals import NoMatchingRuleError, parse_mapping_rules
from tools.fuzz.target import MIB, Target
from tools.fuzz.wire_targets import golden_messages

_PATH = "/fuzz"

# Znodes

Decode = Callable[[str, bytes], Any]
# What is decoded can be written again, where this broker writes such records.
_ZNODES: tuple[tuple[Decode, Callable[[Any], bytes] | None], ...] = (
    (records.decode_broker, records.encode_broker),
    (records.decode_topic, records.encode_topic),
    (records.decode_partition_state, records.encode_partition_state),
    (records.decode_config, records.encode_config),
    (records.decode_config_change, records.encode_config_change),
    (records.decode_controller, None),
    (records.decode_controller_epoch, records.encode_controller_epoch),
    (records.decode_cluster_id, records.encode_cluster_id),
    (records.decode_producer_id_block, records.encode_producer_id_block),
    (records.decode_features, records.encode_features),
    (records.decode_isr_change, records.encode_isr_change),
    (records.decode_log_dir_event, records.encode_log_dir_event),
    (records.decode_reassignment, records.encode_reassignment),
    (records.decode_preferred_election, None),
    (decode_token, encode_token),
)


def znode(data: bytes) -> None:
    """The first byte says of which kind."""
    if not data:
        return
    decode, encode = _ZNODES[data[0] % len(_ZNODES)]
    found = decode(_PATH, data[1:])
    if encode is not None:
        encode(found)


@cache
def znodes() -> Sequence[bytes]:
    partition = TopicPartition("t", 3)
    alice = Principal("User", "alice")
    contents: list[bytes] = [
        records.encode_broker(
            BrokerRecord(
                endpoints=(Endpoint("PLAINTEXT", "h", 9092), Endpoint("SSL", "::1", 9093)),
                security_protocols={"PLAINTEXT": "PLAINTEXT", "SSL": "SSL"},
                rack="r",
                features={},
                timestamp_ms=1,
            )
        ),
        records.encode_topic(TopicRecord(topic_id=bytes(range(16)), partitions=((1, 2), (2, 1)), adding={0: (2,)})),
        records.encode_partition_state(
            PartitionStateRecord(leader=1, leader_epoch=2, isr=(BrokerId(1), BrokerId(2)), controller_epoch=3)
        ),
        records.encode_config({"retention.ms": "5", "x": "ä"}),
        records.encode_config_change("topics/t"),
        records.encode_controller(1, 2),
        records.encode_controller_epoch(5),
        records.encode_cluster_id("abc"),
        b'{"version":1,"broker":1,"block_start":"0","block_end":"999"}',
        records.encode_features(FeaturesRecord(True, {"metadata.version": 3})),
        records.encode_isr_change([partition]),
        records.encode_log_dir_event(1),
        records.encode_reassignment({partition: (1, 2)}),
        records.encode_isr_change([partition]),
        encode_token(TokenInformation("id", alice, alice, (alice,), 1, 2, 3)),
    ]
    return [bytes((number,)) + content for number, content in enumerate(contents)]


# Rules of access

_PATTERN = ResourcePattern(AclResourceType.TOPIC, "orders", PatternType.LITERAL)


def acl(data: bytes) -> None:
    """The first byte says of which kind: the rules about a topic, or a notification of either kind of pattern."""
    if not data:
        return
    kind, content = data[0] % 3, data[1:]
    if kind == 0:
        acls = decode_acls(_PATTERN, content)
        if decode_acls(_PATTERN, encode_acls(acls)) != acls:
            raise AssertionError("rules are other ones after they were written")
        AclRules(acls).decide("User:alice", "h", AclOperation.READ, Resource(AclResourceType.TOPIC, "orders"))
        return
    directory = paths.LITERAL_ACL_CHANGES if kind == 1 else paths.PREFIXED_ACL_CHANGES
    acl_change(changed_pattern(f"{directory}/x", content))


def acls() -> Sequence[bytes]:
    rules = [
        Acl(AclResourceType.TOPIC, "orders", "User:alice", AclOperation.READ),
        Acl(AclResourceType.TOPIC, "orders", "User:*", AclOperation.ALL, Permission.DENY, "1.2.3.4"),
    ]
    prefixed = acl_change(ResourcePattern(AclResourceType.GROUP, "g", PatternType.PREFIXED)).data
    return [b"\0" + encode_acls(rules), b"\1TOPIC:orders", b"\1Topic:a", b"\2" + prefixed]


# Settings


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def properties(data: bytes) -> None:
    parse_properties(_text(data))


def jaas(data: bytes) -> None:
    parse_jaas(_text(data))


def mapping_rules(data: bytes) -> None:
    """Rules, a newline, and a certificate's name."""
    rules, _, name = _text(data).partition("\n")
    if "(" in rules and any(sign in rules for sign in "*+{"):
        # A pattern is the operator's, and may take for ever: only what is around it is fuzzed.
        rules = rules.replace("*", "").replace("+", "").replace("{", "")
    parse_mapping_rules(rules).name_of(name)


def principal_rules(data: bytes) -> None:
    rules, _, principal = _text(data).partition("\n")
    if any(sign in rules for sign in "*+{"):
        rules = rules.replace("*", "").replace("+", "").replace("{", "")
    parse_principal_rules(rules.split(","), "REALM").name_of(principal)


def listeners(data: bytes) -> None:
    bound, _, rest = _text(data).partition("\n")
    protocols, _, advertised = rest.partition("\n")
    texts = {"listeners": bound, "listener.security.protocol.map": protocols, "advertised.listeners": advertised}
    parse_listeners(BrokerSettings({key: value for key, value in texts.items() if value}))


def overrides(data: bytes) -> None:
    connection_overrides(_text(data))


def zookeeper_connect(data: bytes) -> None:
    parse_connect(_text(data))


@cache
def _keys() -> list[str]:
    return sorted(setting.key for setting in known.broker_settings())


def setting(data: bytes) -> None:
    """Two bytes choose a setting; the rest is its value, as --set has it."""
    if len(data) < 2:
        return
    key = _keys()[int.from_bytes(data[:2], "big") % len(_keys())]
    load_settings(None, {}, [f"{key}={_text(data[2:])}"])


def setting_values() -> Sequence[bytes]:
    found: list[bytes] = []
    for number, key in enumerate(_keys()):
        declared = known.broker_setting(key)
        value = "" if declared is None else declared.default_text or "a:b,c"
        found.append(number.to_bytes(2, "big") + value.encode())
    return found


# Groups


def regular_expression(data: bytes) -> None:
    pattern = Pattern(_text(data))
    for name in ("", "a", "orders.eu-1", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "_" * 249):
        pattern.matches(name)


class _Topics:
    """Every name is that of a topic with three partitions."""

    def get(self, name: str) -> TopicFacts | None:
        return TopicFacts(bytes(16), 3)

    def name_of(self, topic_id: bytes) -> str | None:
        return None

    def names(self) -> Iterable[str]:
        return ()

    def racks_of(self, name: str, partition: int) -> frozenset[str]:
        return frozenset()


def member_metadata(data: bytes) -> None:
    parse_subscription(data)
    parse_assignment(data, _Topics())


def member_metadatas() -> Sequence[bytes]:
    found = [b"", b"\0\1"]
    for name in ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment"):
        for version, body in golden_messages().get(name, ()):
            found.append(version.to_bytes(2, "big") + body)
    return found


_SETTINGS = (UserError, InvalidConfigError, PropertiesError)
_LOGIN = b'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b\\"" user_a="c";'
TARGETS = (
    Target("znode", znode, (BadRecordError,), znodes),
    Target("acl", acl, (BadRecordError,), acls),
    Target("properties", properties, _SETTINGS, lambda: [b"a=b\n# c\nd\\\n e:f\\u0041\n", b"key value\r\n!x\n\\=="]),
    Target("jaas", jaas, _SETTINGS, lambda: [_LOGIN]),
    Target(
        "mapping_rules",
        mapping_rules,
        (*_SETTINGS, NoMatchingRuleError),
        lambda: [b"RULE:^CN=(.),OU=.$/$1@x/L,DEFAULT\nCN=a,OU=b", b"DEFAULT\nCN=x", b"RULE:^a$/b/U\na"],
    ),
    Target(
        "principal_rules",
        principal_rules,
        (*_SETTINGS, NoMatchingPrincipalRuleError),
        lambda: [b"RULE:[1:$1@$0](a@R)s/@.//g/L,DEFAULT\na@REALM", b"RULE:[2:$1]\na/b@R", b"DEFAULT\nx@REALM"],
    ),
    Target(
        "listeners",
        listeners,
        _SETTINGS,
        lambda: [b"A://:9092,B://[::1]:9093\nA:PLAINTEXT,B:SSL\nA://h:1,B://h:2", b"PLAINTEXT://127.0.0.1:0"],
    ),
    Target("connection_overrides", overrides, _SETTINGS, lambda: [b"127.0.0.1:5,host:100,::1:3"]),
    Target("zookeeper_connect", zookeeper_connect, _SETTINGS, lambda: [b"a:2181,b,[::1]:99/kafka/x"]),
    Target("setting", setting, _SETTINGS, setting_values, fixed_bytes=4 * MIB),
    Target(
        "regular_expression",
        regular_expression,
        (InvalidRegularExpressionError,),
        lambda: [b"orders\\..*|a{2,5}[^x-z]+?", b"(?i:(a|b)*c)", b"\\pL[[:alpha:]]\\Q.\\E^$\\b", b"(a+)+b"],
        fixed_bytes=16 * MIB,
    ),
    Target("member_metadata", member_metadata, (), member_metadatas),
)
