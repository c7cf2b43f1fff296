"""What groups may set: verdicts and answers as Kafka 4.0, the first with such settings, gives them."""

from __future__ import annotations

import pytest

from braidlog.config.broker import DEFAULT, DYNAMIC_GROUP, BrokerSettings
from braidlog.config.checks import check_broker
from braidlog.config.describe import ConfigSynonym, describe_group
from braidlog.config.group import HEARTBEAT_INTERVAL, SESSION_TIMEOUT, usable_overrides, validate_overrides
from braidlog.config.setting import INT
from braidlog.core.protocol_errors import InvalidConfigError

BROKER = BrokerSettings({"broker.id": "1"})
# Bounds within which a session can be shorter than the pause between heartbeats.
WIDE = BrokerSettings({
    "broker.id": "1",
    "group.consumer.session.timeout.ms": "10000",
    "group.consumer.min.session.timeout.ms": "3000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
})  # fmt: skip


@pytest.mark.parametrize(
    ("overrides", "broker"),
    [
        ({SESSION_TIMEOUT: "45000"}, BROKER),
        ({SESSION_TIMEOUT: " 60000 "}, BROKER),
        ({HEARTBEAT_INTERVAL: "5000"}, BROKER),
        ({HEARTBEAT_INTERVAL: "15000", SESSION_TIMEOUT: "50000"}, BROKER),
        ({HEARTBEAT_INTERVAL: "9999"}, WIDE),
        ({HEARTBEAT_INTERVAL: "3999", SESSION_TIMEOUT: "4000"}, WIDE),
        ({}, BROKER),
    ],
)
def test_what_a_group_may_set(overrides: dict[str, str], broker: BrokerSettings) -> None:
    validate_overrides(overrides, broker)


@pytest.mark.parametrize(
    ("overrides", "broker", "message"),
    [
        ({SESSION_TIMEOUT: "44999"}, BROKER, r"or equal to group.consumer.min.session.timeout.ms \(45000\)"),
        ({SESSION_TIMEOUT: "60001"}, BROKER, r"less than or equal to group.consumer.max.session.timeout.ms \(60000\)"),
        ({HEARTBEAT_INTERVAL: "4999"}, BROKER, r"equal to group.consumer.min.heartbeat.interval.ms \(5000\)"),
        ({HEARTBEAT_INTERVAL: "15001"}, BROKER, r"equal to group.consumer.max.heartbeat.interval.ms \(15000\)"),
        ({HEARTBEAT_INTERVAL: "4000", SESSION_TIMEOUT: "4000"}, WIDE, r"must be greater than consumer.heartbeat"),
        ({HEARTBEAT_INTERVAL: "10000"}, WIDE, r"consumer.session.timeout.ms \(10000\) must be greater than"),
        ({HEARTBEAT_INTERVAL: "soon"}, BROKER, r"expected a whole number"),
        ({HEARTBEAT_INTERVAL: "-1"}, BROKER, r"expected 1 or more"),
        ({"share.session.timeout.ms": "50000"}, BROKER, r"Unknown group config name: share.session.timeout.ms"),
        ({"group.consumer.session.timeout.ms": "50000"}, BROKER, r"Unknown group config name"),
    ],
)
def test_what_it_may_not(overrides: dict[str, str], broker: BrokerSettings, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        validate_overrides(overrides, broker)


def test_what_is_stored_and_cannot_be_used_is_left_out() -> None:
    usable, complaints = usable_overrides({SESSION_TIMEOUT: "1", HEARTBEAT_INTERVAL: "soon", "no.such": "1"})
    assert usable == {SESSION_TIMEOUT: 1}, "a value that was accepted once stays, whatever the bounds are now"
    assert [complaint.split(":")[0] for complaint in complaints] == [
        "the stored value is ignored",
        "no group has a setting no.such; the stored value is ignored",
    ]


def test_described() -> None:
    heartbeat, session = describe_group({SESSION_TIMEOUT: " 4000 "}, WIDE)
    assert (session.name, session.value, session.source) == (SESSION_TIMEOUT, "4000", DYNAMIC_GROUP)
    assert session.synonyms == (ConfigSynonym(SESSION_TIMEOUT, "4000", DYNAMIC_GROUP),)
    assert (session.type, session.read_only, session.sensitive) == (INT, False, False)
    assert session.documentation
    # Kafka calls it a default, although this broker's file says it.
    assert (heartbeat.name, heartbeat.value, heartbeat.source) == (HEARTBEAT_INTERVAL, "1000", DEFAULT)
    assert heartbeat.synonyms == (ConfigSynonym(HEARTBEAT_INTERVAL, "1000", DEFAULT),)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("group.consumer.assignors", "", "must name at least one"),
        ("group.consumer.assignors", "com.example.MyAssignor", "group.consumer.assignors"),
        ("group.coordinator.rebalance.protocols", "classic,consumer,share", "no share groups"),
    ],
)
def test_a_broker_is_not_told_what_it_cannot_do(key: str, value: str, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        check_broker(BrokerSettings({"broker.id": "1", key: value}))
