"""Answers of DescribeConfigs against those of a Kafka 3.9.1 started with the same file and changed the same way."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from braidlog.config.broker import BrokerSettings
from braidlog.config.definitions.braidlog import DIFFERENCES
from braidlog.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_cluster_default,
    describe_topic,
    documentation,
)
from braidlog.config.known import broker_setting
from braidlog.config.sources import load_settings

KAFKA = Path(__file__).parent / "kafka39"
RECORDED: list[dict[str, Any]] = [json.loads(line) for line in (KAFKA / "described.jsonl").read_text().splitlines()]


def settings() -> BrokerSettings:
    static = load_settings(str(KAFKA / "server.properties")).settings
    changed, complaints = static.with_dynamic(
        default={"log.retention.ms": "5000000", "message.max.bytes": "600000"},
        broker={
            "log.cleaner.threads": "2",
            "message.max.bytes": "500000",
            "leader.replication.throttled.rate": "1000",
        },
    )
    assert complaints == []
    return changed


def recorded(resource: str) -> dict[str, dict[str, Any]]:
    return {entry["name"]: entry for entry in RECORDED if entry["of"] == resource}


def comparable(entries: Iterable[ConfigEntry], resource: str) -> dict[str, dict[str, Any]]:
    return {
        entry.name: {
            "of": resource,
            "name": entry.name,
            "value": entry.value,
            "source": entry.source,
            "sensitive": entry.sensitive,
            "read_only": entry.read_only,
            "type": entry.type,
            "synonyms": [list(synonym) for synonym in entry.synonyms],
        }
        for entry in entries
    }


def test_a_topic_with_overrides() -> None:
    overrides = {"retention.ms": "60000", "cleanup.policy": "compact, delete", "min.cleanable.dirty.ratio": "0.0001"}
    assert comparable(describe_topic(overrides, settings()), "topic t") == recorded("topic t")


def test_a_topic_without_overrides() -> None:
    assert comparable(describe_topic({}, settings()), "topic plain") == recorded("topic plain")


def test_a_broker() -> None:
    ours = comparable(describe_broker(settings()), "broker 1")
    theirs = recorded("broker 1")
    assert {name for name in ours if name not in theirs} == {
        "braidlog.allow.settings.without.effect",
        "braidlog.http.listen",
        "braidlog.log.format",
        "braidlog.log.level",
        "braidlog.memory.max",
        "braidlog.host",
        "braidlog.store.dir",
        "braidlog.store.socket",
        "braidlog.inter.broker.requests.on.any.listener",
        "braidlog.session.loss",
        "braidlog.zookeeper.sasl.password",
        "braidlog.zookeeper.sasl.username",
    }
    assert theirs.keys() <= ours.keys()
    # While log.retention.ms is set at run time, Kafka shows log.retention.hours with its default beside its source.
    different = [name for name in theirs if ours[name] != theirs[name] and name not in DIFFERENCES]
    assert different == ["log.retention.hours"]


def test_the_defaults_of_all_brokers() -> None:
    assert comparable(describe_cluster_default(settings()), "broker ") == recorded("broker ")


def test_secrets_are_never_described() -> None:
    secret = BrokerSettings({"ssl.keystore.password": "hush", "my.plugin.token": "hush"})
    entries = {entry.name: entry for entry in describe_broker(secret)}
    for name in ("ssl.keystore.password", "my.plugin.token"):
        assert entries[name].sensitive
        assert entries[name].value is None
        assert [synonym.value for synonym in entries[name].synonyms] in ([None], [])
    assert "hush" not in repr(entries)


def test_documentation_says_when_a_setting_does_nothing() -> None:
    setting = broker_setting("num.io.threads")
    assert setting is not None
    assert "without effect" in documentation(setting)
    implemented = broker_setting("num.partitions")
    assert implemented is not None
    assert documentation(implemented) == implemented.doc
