from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from braidlog.config.broker import BrokerSettings
from braidlog.config.log_settings import DEFAULTS, MAX_LONG, LogSettings
from braidlog.config.topic import log_settings, validate_overrides
from braidlog.core.protocol_errors import InvalidConfigError

DEFAULT_BROKER = BrokerSettings()


def test_overrides_go_before_the_brokers_settings() -> None:
    broker = BrokerSettings({"log.retention.hours": "1", "log.segment.bytes": "1000", "log.cleanup.policy": "compact"})
    settings = log_settings({"segment.bytes": "2000", "flush.messages": "1"}, broker)
    assert settings == DEFAULTS._replace(
        retention_ms=3_600_000, segment_bytes=2000, cleanup_policy=("compact",), flush_messages=1
    )
    assert settings.compacts
    assert not settings.deletes


@pytest.mark.parametrize(
    ("texts", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.ms": "-5"}, -1),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_the_finest_unit_of_retention_counts(texts: dict[str, str], retention_ms: int) -> None:
    assert log_settings({}, BrokerSettings(texts)).retention_ms == retention_ms


def test_flush_and_roll_have_their_fallbacks() -> None:
    broker = BrokerSettings(
        {"log.flush.scheduler.interval.ms": "7", "log.roll.hours": "1", "log.roll.jitter.hours": "2"}
    )
    settings = log_settings({}, broker)
    assert (settings.flush_ms, settings.segment_ms, settings.segment_jitter_ms) == (7, 3_600_000, 7_200_000)
    assert log_settings({}, BrokerSettings({"log.roll.ms": "9", "log.roll.hours": "1"})).segment_ms == 9


def test_the_obsolete_timestamp_bound_counts_where_the_newer_ones_are_not_set() -> None:
    settings = log_settings(
        {"message.timestamp.difference.max.ms": "10", "message.timestamp.after.max.ms": "5"}, DEFAULT_BROKER
    )
    assert settings.message_timestamp_before_max_ms == 10
    assert settings.message_timestamp_after_max_ms == 5
    assert log_settings({}, DEFAULT_BROKER).message_timestamp_before_max_ms == MAX_LONG


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention": "1"}, r"Unknown topic config name: retention \(did you mean retention\.ms\?\)"),
        ({"zzz": "1"}, r"Unknown topic config name: zzz$"),
        ({"log.segment.bytes": "1"}, r"a broker setting; for a topic it is segment\.bytes"),
        ({"segment.bytes": "13"}, r"Invalid value 13 for configuration segment\.bytes: expected 14 or more"),
        ({"retention.ms": None}, r"retention\.ms was given without a value"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, r"min\.compaction\.lag\.ms \(2\) is above"),
        ({"remote.storage.enable": "true"}, r"no tiered storage"),
    ],
)
def test_bad_overrides_are_refused(overrides: dict[str, str | None], message: str) -> None:
    with pytest.raises(InvalidConfigError, match=message):
        validate_overrides(overrides, DEFAULT_BROKER)


def test_a_topic_is_checked_together_with_what_it_inherits() -> None:
    broker = BrokerSettings({"log.cleaner.max.compaction.lag.ms": "100"})
    with pytest.raises(InvalidConfigError):
        validate_overrides({"min.compaction.lag.ms": "101"}, broker)
    validate_overrides({"min.compaction.lag.ms": "101"}, DEFAULT_BROKER)


def test_one_topic_does_not_change_what_the_next_inherits() -> None:
    broker = BrokerSettings()
    log_settings({"message.timestamp.difference.max.ms": "10", "segment.bytes": "100"}, broker)
    assert log_settings({}, broker) == DEFAULTS


def test_log_settings_show_what_differs() -> None:
    assert repr(DEFAULTS._replace(segment_bytes=5)) == "LogSettings(segment_bytes=5)"


def test_threads_that_ask_side_by_side_get_all_of_them() -> None:
    """As the threads do that open logs at a start."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            for _ in range(100):
                broker = BrokerSettings({})
                together = Barrier(4)

                def ask(broker: BrokerSettings = broker, together: Barrier = together) -> LogSettings:
                    together.wait()
                    return log_settings({}, broker)

                answers = [threads.submit(ask) for _ in range(4)]
                assert len({str(answer.result()) for answer in answers}) == 1
    finally:
        sys.setswitchinterval(before)


def test_an_old_message_format_counts_where_the_protocol_version_lets_it() -> None:
    old = BrokerSettings({"inter.broker.protocol.version": "2.8", "log.message.format.version": "0.10.2"})
    assert log_settings({}, old).message_format_version == "0.10.2-IV0"
    assert log_settings({"message.format.version": "0.9.0"}, old).message_format_version == "0.9.0"
    assert log_settings({"message.format.version": "0.9.0"}, DEFAULT_BROKER) == DEFAULTS
