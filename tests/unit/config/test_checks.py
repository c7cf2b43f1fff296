"""What Kafka 3.9.1 accepted and refused (`kafka39/verdicts.json`), judged again here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.config.checks import check_broker
from braidlog.config.listeners import parse_listeners
from braidlog.config.topic import validate_overrides
from braidlog.core.protocol_errors import InvalidConfigError

VERDICTS: dict[str, Any] = json.loads((Path(__file__).parent / "kafka39" / "verdicts.json").read_text())

# Where braidlog decides otherwise, and why.
STRICTER = {
    ("broker", "remote.log.manager.task.retry.jitter"): "not a number is no jitter",
    ("broker", "log.cleaner.min.cleanable.ratio"): "not a number is no ratio",
    ("topic", "min.cleanable.dirty.ratio"): "not a number is no ratio",
    ("broker", "log.cleaner.io.max.bytes.per.second"): "hexadecimal doubles are not read",
    ("broker", "log.cleaner.io.buffer.load.factor"): "hexadecimal doubles are not read",
    ("broker", "sasl.kerberos.ticket.renew.window.factor"): "hexadecimal doubles are not read",
    ("broker", "sasl.kerberos.ticket.renew.jitter"): "hexadecimal doubles are not read",
    ("broker", "sasl.login.refresh.window.factor"): "hexadecimal doubles are not read",
    ("broker", "sasl.login.refresh.window.jitter"): "hexadecimal doubles are not read",
}
LAXER = {
    ("broker", "broker.id"): "no generated ids to collide with",
    ("broker", "reserved.broker.max.id"): "no generated ids to collide with",
    ("broker", "zookeeper.metadata.migration.enable"): "accepted without effect",
    ("broker", "group.coordinator.rebalance.protocols"): "the newer group protocol needs no KRaft here",
    ("broker", "log.cleaner.threads"): "Kafka divides by zero",
}
STRICTER_COMBINED = {
    '{"listeners": "PLAINTEXT://[::]:9092"}': "as unreachable as 0.0.0.0",
    '{"listeners": "PLAINTEXT://h:70000"}': "no such port",
    '{"listeners": "PLAINTEXT://h:-1"}': "no such port",
    '{"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PLAINTEXT:SSL"}': "one of the two is a mistake",
    '{"log.dirs": "/a,/a"}': "Kafka fails later, on the directory's lock",
    '{"listener.name.plaintext.max.connections": "x"}': "Kafka fails later, when the listener opens",
}


def accepts(kind: str, texts: dict[str, str]) -> bool:
    try:
        if kind == "topic":
            validate_overrides(texts, BrokerSettings({"broker.id": "1"}))
        else:
            settings = BrokerSettings(texts if "process.roles" in texts else {"broker.id": "1", **texts})
            check_broker(settings)
            parse_listeners(settings)
    except InvalidConfigError:
        return False
    return True


@pytest.mark.parametrize("kind", ["topic", "broker"])
def test_single_settings(kind: str) -> None:
    wrong = []
    for key, values in VERDICTS[kind].items():
        if (kind, key) not in STRICTER:
            wrong += [f"{key}={value} refused" for value in values["accepted"] if not accepts(kind, {key: value})]
        if (kind, key) not in LAXER:
            wrong += [f"{key}={value} accepted" for value in values["refused"] if accepts(kind, {key: value})]
    assert wrong == []


def test_the_listed_differences_exist() -> None:
    """A difference that is gone must leave the list."""
    for kind, key in STRICTER:
        assert not all(accepts(kind, {key: value}) for value in VERDICTS[kind][key]["accepted"]), key
    for kind, key in LAXER:
        assert any(accepts(kind, {key: value}) for value in VERDICTS[kind][key]["refused"]), key


@pytest.mark.parametrize(
    ("kind", "texts", "accepted"), VERDICTS["combined"], ids=[json.dumps(case[1]) for case in VERDICTS["combined"]]
)
def test_settings_together(kind: str, texts: dict[str, str], accepted: bool) -> None:
    if json.dumps(texts) in STRICTER_COMBINED:
        assert accepted
        accepted = False
    assert accepts(kind, texts) == accepted


def test_a_refusal_names_the_setting_the_value_and_what_is_allowed() -> None:
    for key, values in VERDICTS["topic"].items():
        setting = known.topic_settings()[key]
        for value in values["refused"]:
            if key.startswith("remote."):
                continue
            with pytest.raises(InvalidConfigError) as refusal:
                setting.parse(value)
            message = str(refusal.value.message)
            assert message.startswith(f"Invalid value {value} for configuration {key}: ")
            assert any(word in message for word in ("expected", "between", "pair", "needed")), message
