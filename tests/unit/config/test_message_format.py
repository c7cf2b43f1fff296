from __future__ import annotations

import pytest

from braidlog.config.broker import BrokerSettings
from braidlog.config.message_format import (
    broker_format_version,
    check_format,
    format_without_effect,
    parse_protocol_version,
    stored_format,
    topic_format_version,
)


def broker(protocol: str, version: str | None = None) -> BrokerSettings:
    texts = {"inter.broker.protocol.version": protocol}
    return BrokerSettings(texts if version is None else {**texts, "log.message.format.version": version})


def test_versions_are_in_order() -> None:
    assert parse_protocol_version("3.5") > parse_protocol_version("3.5-IV2") > parse_protocol_version("3.4")
    assert parse_protocol_version("3.5-IV2.1") == parse_protocol_version("3.5-IV2")


@pytest.mark.parametrize(
    ("version", "magic"),
    [
        ("0.8.0", 0),
        ("0.9.0.1", 0),
        ("0.10.0-IV0", 1),
        ("0.10.2", 1),
        ("0.11.0-IV0", 2),
        ("0.11.0", 2),
        ("1.0", 2),
        ("3.0-IV1", 2),
        ("3.9.1", 2),
    ],
)
def test_formats_by_release(version: str, magic: int) -> None:
    assert stored_format(version) == magic


def test_a_topics_own_counts_before_the_brokers() -> None:
    old = broker("2.8", "0.10.2")
    assert topic_format_version(None, old) == broker_format_version(old) == "0.10.2-IV0"
    assert topic_format_version("0.9.0", old) == "0.9.0"
    assert topic_format_version("0.11.0", old) == "0.11.0"
    assert topic_format_version("0.9.0", broker("2.8")) == "0.9.0"


@pytest.mark.parametrize("protocol", ["3.0", "3.0-IV1", "3.4", "3.9-IV0"])
def test_none_counts_from_3_0_on_and_that_is_said(protocol: str) -> None:
    new = broker(protocol, "0.10.2")
    assert broker_format_version(new) == topic_format_version("0.9.0", new) == "3.0-IV1"
    said = format_without_effect(None, new)
    assert said is not None
    assert said.startswith(
        f"log.message.format.version=0.10.2 has no effect: inter.broker.protocol.version is {protocol}"
    )
    said = format_without_effect("0.9.0", new)
    assert said is not None
    assert said.startswith("message.format.version=0.9.0 has no effect")
    assert format_without_effect("0.11.0", new) is None
    assert format_without_effect(None, broker(protocol)) is None


@pytest.mark.parametrize("protocol", ["2.8", "3.0-IV0"])
def test_nothing_is_said_where_it_counts(protocol: str) -> None:
    assert stored_format(broker_format_version(broker(protocol, "0.10.2"))) == 1
    assert format_without_effect(None, broker(protocol, "0.10.2")) is None
    assert format_without_effect("0.9.0", broker(protocol)) is None


def test_a_format_that_the_protocol_version_does_not_know_is_refused() -> None:
    problem = check_format(broker("0.10.2"))
    assert problem is not None
    assert "log.message.format.version 3.0-IV1" in problem
    assert check_format(broker("0.10.2", "0.10.2")) is None
    assert check_format(broker("2.8")) is None
