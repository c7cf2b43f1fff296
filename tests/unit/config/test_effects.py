"""A setting that claims an effect is read by somebody, and one that claims none is not."""

from __future__ import annotations

from pathlib import Path

import braidlog
from braidlog.config import known
from braidlog.config.topic import SYNONYMS

SOURCE = Path(braidlog.__file__).parent
# Modules that name settings without obeying them.
NOT_READERS = {
    *(f"config/{name}.py" for name in ("checks", "dynamic", "known", "log_settings", "sources")),
    # The command line's clients.
    *(f"cli/{name}.py" for name in ("options", "client_options")),
}
# Tables, and clients: those have settings of their own, some of the same names.
NOT_ROOMS = ("config/definitions/", "wire/generated/", "client/", "security/")
# Read through a property of LogSettings, or folded into the bounds that are read.
READ_INDIRECTLY = {"message.timestamp.type", "message.timestamp.difference.max.ms", "cleanup.policy"}


def _code() -> str:
    paths = (path.relative_to(SOURCE) for path in sorted(SOURCE.rglob("*.py")))
    readers = (
        path
        for path in paths
        if path.as_posix() not in NOT_READERS
        and not path.as_posix().startswith(NOT_ROOMS)
    )
    return "".join((SOURCE / path).read_text() for path in readers)


CODE = _code()


def _inherited() -> set[str]:
    """Broker settings whose effect is that of the topic setting that falls back on them."""
    return {name for broker_key in SYNONYMS.values() for name in known.synonyms(broker_key)}


def test_topic_settings_are_read_where_they_claim_an_effect() -> None:
    wrong = []
    for key, setting in known.topic_settings().items():
        read = f".{key.replace('.', '_')}" in CODE or key in READ_INDIRECTLY
        if read == (setting.no_effect is not None):
            wrong.append(f"{key}: {'is read, drop no_effect' if read else 'is read by nobody, say no_effect'}")
    assert wrong == []


def test_broker_settings_are_read_where_they_claim_an_effect() -> None:
    wrong = []
    for setting in known.broker_settings():
        if setting.key in _inherited():
            continue
        read = f'"{setting.key}"' in CODE
        if read == (setting.no_effect is not None):
            wrong.append(f"{setting.key}: {'is read, drop no_effect' if read else 'is read by nobody, say no_effect'}")
    assert wrong == []


def test_an_inherited_setting_has_an_effect_where_the_topics_has() -> None:
    topic = known.topic_settings()
    for key, broker_key in SYNONYMS.items():
        setting = known.broker_setting(broker_key)
        assert setting is not None
        assert (setting.no_effect is None) == (topic[key].no_effect is None), broker_key
