"""The tables against the facts of Kafka 3.9.1 (`kafka39/settings.json`, read out of its own definitions)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from braidlog.config import known
from braidlog.config.broker import BrokerSettings
from braidlog.config.definitions.braidlog import DIFFERENCES
from braidlog.config.definitions.braidlog import SETTINGS as OWN
from braidlog.config.log_settings import DEFAULTS, LogSettings
from braidlog.config.setting import LIST, TYPE_NAMES, Setting
from braidlog.config.topic import SYNONYMS, log_settings

FACTS: dict[str, Any] = json.loads((Path(__file__).parent / "kafka39" / "settings.json").read_text())
BROKER = {setting.key: setting for setting in known.broker_settings()}
TOPIC = known.topic_settings()


def test_every_key_of_kafka_is_known_and_no_other() -> None:
    assert set(TOPIC) == set(FACTS["topic"])
    assert set(BROKER) - {setting.key for setting in OWN} == set(FACTS["broker"])


def test_no_key_is_declared_twice() -> None:
    from importlib import import_module

    keys = [
        setting.key
        for theme in known._THEMES
        for setting in import_module(f"braidlog.config.definitions.{theme}").SETTINGS
    ]
    assert len(keys) == len(set(keys)) == len(BROKER)


@pytest.mark.parametrize("kind", ["broker", "topic"])
def test_types_defaults_importance_and_modes_are_kafkas(kind: str) -> None:
    table = BROKER if kind == "broker" else TOPIC
    for key, fact in FACTS[kind].items():
        setting = table[key]
        assert TYPE_NAMES[setting.kind] == fact["type"], key
        assert setting.importance == fact["importance"], key
        assert setting.internal == fact["internal"], key
        if kind == "broker":
            assert setting.mode == fact["mode"], key
        default = DIFFERENCES[key][0] if key in DIFFERENCES else setting.default_text
        assert default == fact["default"], key


def test_every_default_passes_its_own_rule() -> None:
    for setting in [*BROKER.values(), *TOPIC.values(), *known.dynamic_only_settings().values()]:
        assert setting.parse(setting.default_text) == setting.default, setting.key


def test_every_setting_has_a_short_sentence_of_documentation() -> None:
    for setting in [*BROKER.values(), *TOPIC.values(), *known.dynamic_only_settings().values()]:
        assert 15 <= len(setting.doc) <= 200, setting.key
        assert setting.doc.endswith("."), setting.key
        assert setting.doc[0].isupper(), setting.key
        assert setting.no_effect is None or not setting.no_effect.endswith("."), setting.key


def test_synonyms_of_topic_settings_are_kafkas() -> None:
    assert {key: names[0] for key, names in FACTS["topic_synonyms"].items()} == SYNONYMS
    for key, names in FACTS["topic_synonyms"].items():
        assert list(known.synonyms(SYNONYMS[key])) == names


def test_synonyms_of_broker_settings_are_kafkas() -> None:
    for key in FACTS["broker"]:
        assert list(known.synonyms(key)) == FACTS["broker_synonyms"].get(key, [key])


def test_log_settings_have_a_field_and_the_default_of_every_topic_setting() -> None:
    assert set(LogSettings._fields) == {key.replace(".", "_") for key in TOPIC}
    for key, setting in TOPIC.items():
        assert getattr(DEFAULTS, key.replace(".", "_")) == setting.default, key


def test_a_broker_with_defaults_gives_its_topics_the_topic_defaults() -> None:
    assert log_settings({}, BrokerSettings()) == DEFAULTS


def test_list_defaults_are_tuples() -> None:
    def is_right(setting: Setting) -> bool:
        return setting.default is None or isinstance(setting.default, tuple) == (setting.kind == LIST)

    assert [setting for setting in BROKER.values() if not is_right(setting)] == []
