"""Finds a setting by its key; a theme's table is imported when the first key is not found in those before it.

A start reads a handful of keys, nearly all of the first themes, and should not pay for three hundred rows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from importlib import import_module
from typing import Final

from braidlog.config.setting import Setting

# Broker themes, those that every start reads first.
_THEMES: Final = (
    "network", "log", "kraft", "replication", "braidlog", "transactions", "groups", "zookeeper", "security",
    "quotas", "metrics", "tiered",
)  # fmt: skip

# `listener.name.internal.ssl.keystore.location` overrides a setting for one listener (KIP-103).
LISTENER_PREFIX: Final = "listener.name."
# These are also set per SASL mechanism: `listener.name.internal.plain.sasl.jaas.config`.
_PER_MECHANISM: Final = (
    "sasl.jaas.config", "sasl.login.callback.handler.class", "sasl.login.class",
    "sasl.server.callback.handler.class", "connections.max.reauth.ms",
    "sasl.kerberos.service.name", "sasl.kerberos.principal.to.local.rules",
)  # fmt: skip

# As are all of OAUTHBEARER: `listener.name.internal.oauthbearer.sasl.oauthbearer.jwks.endpoint.url`.
_OAUTHBEARER: Final = "oauthbearer.sasl.oauthbearer."

# `authorizer.zookeeper.ssl.client.enable` is zookeeper.ssl.client.enable for the ZooKeeper that holds the ACLs.
AUTHORIZER_PREFIX: Final = "authorizer.zookeeper."

# Settings that are one and the same in another unit; the first that is set counts.
_SYNONYM_GROUPS: Final = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
)
_FLUSH: Final = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")

_found: dict[str, Setting] = {}
_unread = list(_THEMES)
_reading = threading.Lock()
_topic: dict[str, Setting] = {}
_group: dict[str, Setting] = {}
_dynamic_only: dict[str, Setting] = {}
_unlisted: dict[str, Setting] = {}


def broker_setting(key: str) -> Setting | None:
    """The definition of a broker setting; none for an unknown key."""
    setting = _found.get(key)
    while setting is None and _read_next_theme():
        setting = _found.get(key)
    # Another thread may have read the last theme since.
    return _found.get(key) if setting is None else setting


def listener_base(key: str) -> str | None:
    """The setting that a `listener.name.<listener>.` key overrides; none for other keys."""
    if not key.startswith(LISTENER_PREFIX):
        return None
    base = key[len(LISTENER_PREFIX) :].partition(".")[2]
    if base.startswith(_OAUTHBEARER):
        return base.removeprefix("oauthbearer.")
    return next((name for name in _PER_MECHANISM if base.endswith(name)), base)


def mechanism_key(listener: str, mechanism: str, key: str) -> str:
    """Where a setting of one SASL mechanism on one listener is written."""
    return f"{LISTENER_PREFIX}{listener.lower()}.{mechanism.lower()}.{key}"


def broker_setting_for(key: str) -> Setting | None:
    """As `broker_setting`, but also for keys with a prefix, those that are only ever dynamic and the unlisted."""
    known = _found.get(key)
    if known is not None:
        return known
    base = listener_base(key)
    found = broker_setting(base if base is not None else key)
    if found is None and key.startswith(AUTHORIZER_PREFIX):
        found = broker_setting(key.removeprefix("authorizer."))
    return found or dynamic_only_settings().get(key) or unlisted_settings().get(key)


def broker_settings() -> Iterator[Setting]:
    """Every broker setting that a file may hold, by theme."""
    while _read_next_theme():
        pass
    return iter(_found.values())


def topic_settings() -> dict[str, Setting]:
    if not _topic:
        from braidlog.config.definitions.topics import SETTINGS

        _topic.update({setting.key: setting for setting in SETTINGS})
    return _topic


def group_settings() -> dict[str, Setting]:
    """What a group may set for itself."""
    if not _group:
        from braidlog.config.definitions.groups import GROUP_SETTINGS

        _group.update({setting.key: setting for setting in GROUP_SETTINGS})
    return _group


def dynamic_only_settings() -> dict[str, Setting]:
    if not _dynamic_only:
        from braidlog.config.definitions.quotas import DYNAMIC_ONLY

        _dynamic_only.update({setting.key: setting for setting in DYNAMIC_ONLY})
    return _dynamic_only


def unlisted_settings() -> dict[str, Setting]:
    """Those that a file may hold although Kafka does not count them among its own."""
    if not _unlisted:
        from braidlog.config.definitions.unlisted import SETTINGS

        _unlisted.update({setting.key: setting for setting in SETTINGS})
    return _unlisted


def synonyms(key: str) -> tuple[str, ...]:
    """The keys that decide about `key`, strongest first, itself included."""
    for group in _SYNONYM_GROUPS:
        if key in group:
            return group
    if key == _FLUSH[0]:
        return _FLUSH
    base = listener_base(key)
    return (key,) if base is None else (key, base)


def _read_next_theme() -> bool:
    """False where all are read. Logs are opened by several threads, which ask for settings side by side."""
    with _reading:
        if not _unread:
            return False
        module = import_module(f"braidlog.config.definitions.{_unread[0]}")
        _found.update({setting.key: setting for setting in module.SETTINGS})
        del _unread[0]
    return True
