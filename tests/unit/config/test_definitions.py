"""The tables against the facts of Kafka 3.9.1 (`kafka39/settings.json`, read out of its own definitions)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from braidlog.config import known
from braidlog.config.definitions.braidlog import DIFFERENCES
from braidlog.config.setting import LIST, TYPE_NAMES, Setting

FACTS: dict[str, Any] = json.loads((Path(__file__).parent / "kafka39" / "settings.json").read_text())
BROKER = {setting.key: setting for setting in known.broker_settings()}
TOPIC = known.topic_settings()


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


def test_list_defaults_are_tuples() -> None:
    def is_right(setting: Setting) -> bool:
        return setting.default is None or isinstance(setting.default, tuple) == (setting.kind == LIST)

    assert [setting for setting in BROKER.values() if not is_right(setting)] == []
