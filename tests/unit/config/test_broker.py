from __future__ import annotations

import subprocess
import sys

import pytest

from braidlog.config.broker import (
    DEFAULT,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT_BROKER,
    STATIC_BROKER,
    BrokerSettings,
)
from braidlog.config.checks import connection_overrides
from braidlog.core.protocol_errors import InvalidConfigError


def test_the_strongest_layer_decides() -> None:
    settings = BrokerSettings(
        {"message.max.bytes": "1", "log.segment.bytes": "100", "num.partitions": "9"},
        dynamic_default={"message.max.bytes": "2", "log.segment.bytes": "200"},
        dynamic_broker={"message.max.bytes": "3"},
    )
    keys = ("message.max.bytes", "log.segment.bytes", "num.partitions", "log.retention.bytes")
    assert [settings.get(key) for key in keys] == [3, 200, 9, -1]
    sources = [DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER, STATIC_BROKER, DEFAULT]
    assert [settings.source(key) for key in keys] == sources


def test_typed_reading() -> None:
    settings = BrokerSettings({"log.dirs": "/a, /b,", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256"})
    assert settings.get_int("num.partitions") == 1
    assert settings.get_bool("auto.create.topics.enable") is True
    assert settings.get_float("log.cleaner.min.cleanable.ratio") == 0.5
    assert settings.get_str("broker.rack") == ""
    assert settings.get_list("sasl.enabled.mechanisms") == ("PLAIN", "SCRAM-SHA-256")
    assert settings.get_list("zookeeper.ssl.cipher.suites") == ()
    assert settings.log_dirs == ("/a", "/b")
    assert BrokerSettings().log_dirs == ("data",)
    with pytest.raises(TypeError, match=r"num\.partitions is 1, not text"):
        settings.get_str("num.partitions")
    with pytest.raises(KeyError):
        settings.get("no.such.key")


@pytest.mark.parametrize(("texts", "broker_id"), [({}, -1), ({"broker.id": "4"}, 4), ({"node.id": "5"}, 5)])
def test_either_id_names_the_broker(texts: dict[str, str], broker_id: int) -> None:
    settings = BrokerSettings(texts)
    assert settings.broker_id == broker_id
    assert settings.get("node.id") == broker_id


def test_an_override_for_a_listener_is_checked_and_read() -> None:
    settings = BrokerSettings({"listener.name.internal.max.connections": "5", "max.connections": "7"})
    assert settings.get_for_listener("INTERNAL", "max.connections") == 5
    assert settings.get_for_listener("OTHER", "max.connections") == 7
    assert settings.unknown == []
    with pytest.raises(InvalidConfigError, match=r"expected a whole number"):
        BrokerSettings({"listener.name.internal.max.connections": "x"})


def test_connection_overrides() -> None:
    assert connection_overrides("a:1, ::1:2") == {"a": 1, "::1": 2}
    assert connection_overrides("") == {}
    with pytest.raises(InvalidConfigError, match=r"host:connections"):
        connection_overrides("a")


def test_a_plain_start_reads_few_tables_and_imports_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from braidlog.config.sources import load_settings\n"
        "from braidlog.config.topic import log_settings\n"
        "from braidlog.config.listeners import parse_listeners\n"
        "settings = load_settings(None, {}, ['log.dirs=/x']).settings\n"
        "log_settings({}, settings), parse_listeners(settings)\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    modules = set(done.stdout.split())
    heavy = {"dataclasses", "inspect", "asyncio", "json", "pathlib", "difflib", "braidlog.config.describe"}
    unneeded = {f"braidlog.config.definitions.{theme}" for theme in ("security", "zookeeper", "groups", "tiered")}
    assert modules & (heavy | unneeded) == set()
