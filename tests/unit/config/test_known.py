from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from braidlog.config import known
from braidlog.config.definitions.braidlog import SETTINGS as OWN
from braidlog.config.topic import SYNONYMS

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


def test_synonyms_of_topic_settings_are_kafkas() -> None:
    assert {key: names[0] for key, names in FACTS["topic_synonyms"].items()} == SYNONYMS
    for key, names in FACTS["topic_synonyms"].items():
        assert list(known.synonyms(SYNONYMS[key])) == names


def test_synonyms_of_broker_settings_are_kafkas() -> None:
    for key in FACTS["broker"]:
        assert list(known.synonyms(key)) == FACTS["broker_synonyms"].get(key, [key])
