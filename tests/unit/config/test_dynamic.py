from __future__ import annotations

import pytest

from braidlog.config.broker import BrokerSettings
from braidlog.config.dynamic import (
    APPEND,
    DELETE,
    SET,
    SUBTRACT,
    Alteration,
    alter_broker,
    alter_topic,
    validate_dynamic,
)
from braidlog.core.protocol_errors import InvalidConfigError, InvalidRequestError, ProtocolError

BROKER = BrokerSettings({"broker.id": "1", "log.cleaner.threads": "1"})


def test_what_may_change_passes() -> None:
    validate_dynamic({"log.retention.ms": "5", "my.plugin.key": "x"}, BROKER, per_broker=False)
    validate_dynamic({"listeners": "PLAINTEXT://h:1"}, BROKER, per_broker=True)
    validate_dynamic({"listener.name.external.ssl.keystore.location": "/k"}, BROKER, per_broker=True)
    validate_dynamic({"leader.replication.throttled.rate": "5"}, BROKER, per_broker=True)


@pytest.mark.parametrize(
    ("changes", "per_broker", "message"),
    [
        ({"num.partitions": "5", "broker.id": "7"}, True, r"cannot change at run time.*: broker.id, num.partitions"),
        ({"ssl.keystore.location": "/k"}, True, r"listener.name.<listener>. before the key"),
        ({"listeners": "PLAINTEXT://h:1"}, False, r"one broker at a time.*: listeners"),
        ({"listener.name.x.ssl.keystore.location": "/k"}, False, r"one broker at a time"),
        ({"retention.ms": "5000"}, True, r"retention.ms is a setting of topics.*: the broker's is log.retention.ms"),
        ({"retention.ms": "5000"}, False, r"retention.ms is a setting of topics"),
        ({"remote.storage.enable": "true"}, True, r"name the topic instead of a broker"),
        ({"listener.name.x.log.retention.ms": "5"}, True, r"the same for all listeners.*: listener.name.x.log"),
        ({"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, True, r"clients cannot connect to 0.0.0.0"),
        ({"log.retention.ms": "x"}, True, r"expected a whole number"),
        ({"log.cleaner.threads": "1000"}, True, r"more than 1 MiB is needed"),
        ({"log.retention.ms": "0"}, False, r"log.retention.ms must be 1 or more"),
    ],
)
def test_what_may_not_change_is_refused(changes: dict[str, str], per_broker: bool, message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        validate_dynamic(changes, BROKER, per_broker=per_broker)


def test_what_was_let_in_before_does_not_stand_in_the_way() -> None:
    old = {"retention.ms": "5000", "listener.name.x.log.retention.ms": "5"}
    broker = BrokerSettings({"broker.id": "1"}, dynamic_broker=old)
    validate_dynamic({**old, "log.retention.ms": "7"}, broker, per_broker=True)
    with pytest.raises(InvalidConfigError, match=r"segment.bytes is a setting of topics"):
        validate_dynamic({**old, "segment.bytes": "7000"}, broker, per_broker=True)


def test_a_bad_stored_entry_is_left_out_and_told() -> None:
    changed, complaints = BROKER.with_dynamic(
        default={"log.retention.ms": "5", "num.partitions": "3"}, broker={"log.segment.bytes": "x"}
    )
    assert changed.get("log.retention.ms") == 5
    assert changed.get("num.partitions") == 1
    assert changed.get("log.segment.bytes") == 2**30
    assert len(complaints) == 2
    assert BROKER.changed_keys(changed) == ["log.retention.ms"]


def test_set_and_delete() -> None:
    after = alter_topic(
        {"retention.ms": "1", "segment.ms": "2"},
        [Alteration("retention.ms", DELETE, None), Alteration("flush.ms", SET, "3"), Alteration("none", DELETE, None)],
        BROKER,
    )
    assert after == {"segment.ms": "2", "flush.ms": "3"}


@pytest.mark.parametrize(
    ("current", "operation", "value", "after"),
    [
        ({}, APPEND, "compact", "delete,compact"),
        ({"cleanup.policy": "compact"}, APPEND, "compact,delete", "compact,delete"),
        ({"cleanup.policy": "compact,delete"}, SUBTRACT, "delete", "compact"),
        ({}, SUBTRACT, "delete", ""),
    ],
)
def test_lists_grow_and_shrink_from_what_counts_now(
    current: dict[str, str], operation: int, value: str, after: str
) -> None:
    altered = alter_topic(current, [Alteration("cleanup.policy", operation, value)], BROKER)
    assert altered == {"cleanup.policy": after}


def test_a_brokers_list_starts_from_its_effective_value() -> None:
    broker = BrokerSettings({"log.cleanup.policy": "compact"})
    altered = alter_broker({}, [Alteration("log.cleanup.policy", APPEND, "delete")], broker)
    assert altered == {"log.cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("alterations", "error"),
    [
        ([Alteration("retention.ms", APPEND, "1")], InvalidConfigError),
        ([Alteration("unknown", SUBTRACT, "1")], InvalidConfigError),
        ([Alteration("retention.ms", SET, None)], InvalidRequestError),
        ([Alteration("retention.ms", 9, "1")], InvalidRequestError),
        ([Alteration("retention.ms", SET, "1"), Alteration("retention.ms", DELETE, None)], InvalidRequestError),
    ],
)
def test_alterations_that_make_no_sense(alterations: list[Alteration], error: type[ProtocolError]) -> None:
    with pytest.raises(error):
        alter_topic({}, alterations, BROKER)
