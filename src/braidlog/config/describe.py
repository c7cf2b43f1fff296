"""Settings as DescribeConfigs answers them: effective value, where it comes from, and what else was in question."""

from collections.abc import Mapping
from typing import NamedTuple

from braidlog.config import group, known
from braidlog.config.broker import (
    DEFAULT,
    DYNAMIC_BROKER,
    DYNAMIC_DEFAULT_BROKER,
    DYNAMIC_GROUP,
    DYNAMIC_TOPIC,
    STATIC_BROKER,
    BrokerSettings,
)
from braidlog.config.setting import READ_ONLY, UNKNOWN, Setting, to_text
from braidlog.config.topic import SYNONYMS, broker_default


class ConfigSynonym(NamedTuple):
    name: str
    value: str | None
    source: int


class ConfigEntry(NamedTuple):
    name: str
    # None where the setting is sensitive or has no value.
    value: str | None
    source: int
    read_only: bool
    sensitive: bool
    type: int
    documentation: str
    # Every layer that has a say, strongest first; empty where the built-in default stands alone.
    synonyms: tuple[ConfigSynonym, ...]


def topic_sources(overrides: Mapping[str, str], broker: BrokerSettings) -> dict[str, int]:
    """Which layer decides about each topic setting, all synonyms counted: what CreateTopics answers."""
    sources: dict[str, int] = {}
    for key in known.topic_settings():
        sources[key] = DYNAMIC_TOPIC if key in overrides else DEFAULT
        for name in known.synonyms(SYNONYMS[key]) if key not in overrides and key in SYNONYMS else ():
            if broker.is_set(name):
                sources[key] = broker.source(name)
                break
    return sources


def describe_topic(overrides: Mapping[str, str], broker: BrokerSettings) -> list[ConfigEntry]:
    """Every topic setting, sorted by key."""
    entries = []
    for key, setting in sorted(known.topic_settings().items()):
        broker_key = SYNONYMS.get(key)
        synonyms = _broker_synonyms(broker_key, broker, setting.sensitive) if broker_key is not None else ()
        value = to_text(setting.parse(overrides[key]) if key in overrides else broker_default(setting, broker))
        if setting.sensitive:
            value = None
        if key in overrides:
            synonyms = (ConfigSynonym(key, value, DYNAMIC_TOPIC), *synonyms)
        entries.append(_entry(key, setting, value, synonyms, read_only=False))
    return entries


def describe_group(overrides: Mapping[str, str], broker: BrokerSettings) -> list[ConfigEntry]:
    """Every setting of a group, sorted by key.

    As in Kafka, what the broker gives is a default here, and nothing stands behind a value of the group's own.
    """
    usable, _ = group.usable_overrides(overrides)
    entries = []
    for key, setting in sorted(known.group_settings().items()):
        own = usable.get(key)
        value = to_text(group.broker_default(setting, broker) if own is None else own)
        synonyms = (ConfigSynonym(key, value, DEFAULT if own is None else DYNAMIC_GROUP),)
        entries.append(_entry(key, setting, value, synonyms, read_only=False))
    return entries


def describe_broker(broker: BrokerSettings) -> list[ConfigEntry]:
    """Every setting of this broker, the unknown ones from its file included, sorted by key."""
    keys = {setting.key for setting in known.broker_settings() if not setting.internal}
    keys |= broker.static.keys() | broker.dynamic_default.keys() | broker.dynamic_broker.keys()
    return [_broker_entry(key, broker) for key in sorted(keys)]


def describe_cluster_default(broker: BrokerSettings) -> list[ConfigEntry]:
    """What was changed at run time for all brokers: the answer for the broker with the empty name."""
    return [_broker_entry(key, broker, only=DYNAMIC_DEFAULT_BROKER) for key in sorted(broker.dynamic_default)]


def _broker_entry(key: str, broker: BrokerSettings, only: int | None = None) -> ConfigEntry:
    setting = known.broker_setting_for(key)
    # An unknown setting may hold anything, so it is treated as a secret.
    sensitive = setting is None or setting.sensitive
    synonyms = _broker_synonyms(key, broker, sensitive)
    if only is None:
        value = to_text(broker.get(key))
    else:
        synonyms = tuple(synonym for synonym in synonyms if synonym.source == only)
        value = broker.dynamic_default[key]
    read_only = setting is None or setting.mode == READ_ONLY or known.broker_setting(key) is None
    return _entry(key, setting, None if sensitive else value, synonyms, read_only)


def _entry(
    key: str,
    setting: Setting | None,
    value: str | None,
    synonyms: tuple[ConfigSynonym, ...],
    read_only: bool,
) -> ConfigEntry:
    return ConfigEntry(
        name=key,
        value=value,
        source=synonyms[0].source if synonyms else DEFAULT,
        read_only=read_only,
        sensitive=setting is None or setting.sensitive,
        type=UNKNOWN if setting is None else setting.kind,
        documentation="" if setting is None else documentation(setting),
        synonyms=synonyms,
    )


def documentation(setting: Setting) -> str:
    """What include_documentation returns: the sentence, and whether braidlog does anything with the setting."""
    if setting.no_effect is None:
        return setting.doc
    if setting.protects is None:
        return f"{setting.doc} Accepted without effect: {setting.no_effect}."
    return f"{setting.doc} Refused, since it has no effect ({setting.no_effect}): {setting.protects}."


def _broker_synonyms(key: str, broker: BrokerSettings, sensitive: bool) -> tuple[ConfigSynonym, ...]:
    """All layers of all synonyms, layer by layer; what comes before the key's own first mention is dropped.

    So does Kafka, whose users therefore see no synonym where log.retention.hours alone decides about
    log.retention.ms.
    """
    names = known.synonyms(key)
    found: list[ConfigSynonym] = []
    layers = (
        (broker.dynamic_broker, DYNAMIC_BROKER),
        (broker.dynamic_default, DYNAMIC_DEFAULT_BROKER),
        (broker.static, STATIC_BROKER),
    )
    for texts, source in layers:
        found += (ConfigSynonym(name, texts[name], source) for name in names if name in texts)
    for name in names:
        setting = known.broker_setting(name)
        if setting is not None and setting.default is not None:
            found.append(ConfigSynonym(name, setting.default_text, DEFAULT))
    while found and found[0].name != key:
        del found[0]
    if sensitive:
        return tuple(synonym._replace(value=None) for synonym in found)
    return tuple(found)
