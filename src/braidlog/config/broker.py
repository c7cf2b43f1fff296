"""A broker's settings in their layers: defaults, what it was started with, and what was changed at run time.

    per broker, at run time      strongest    DYNAMIC_BROKER
    cluster-wide, at run time                 DYNAMIC_DEFAULT_BROKER
    command line > environment > file         STATIC_BROKER
    Kafka's default              weakest      DEFAULT

A `BrokerSettings` never changes: a change at run time makes a new one with `with_dynamic`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from braidlog.config import known
from braidlog.config.rules import Value
from braidlog.config.setting import READ_ONLY, parse_list
from braidlog.core.protocol_errors import InvalidConfigError

# The source codes of DescribeConfigs (KIP-226, KIP-412, KIP-848); 0 is unknown.
DYNAMIC_TOPIC: Final = 1
DYNAMIC_BROKER: Final = 2
DYNAMIC_DEFAULT_BROKER: Final = 3
STATIC_BROKER: Final = 4
DEFAULT: Final = 5
DYNAMIC_BROKER_LOGGER: Final = 6
DYNAMIC_GROUP: Final = 8

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_NOTHING: Final[Mapping[str, str]] = {}


class BrokerSettings:
    """Typed reading of every broker setting; raises InvalidConfigError if one that is set has a bad value."""

    def __init__(
        self,
        static: Mapping[str, str] = _NOTHING,
        *,
        dynamic_default: Mapping[str, str] = _NOTHING,
        dynamic_broker: Mapping[str, str] = _NOTHING,
    ) -> None:
        self.static = _with_both_ids(static)
        self.dynamic_default = dict(dynamic_default)
        self.dynamic_broker = dict(dynamic_broker)
        # Keys that no table knows: kept, since plugins of Kafka read theirs so, and for a warning at start.
        self.unknown: list[str] = []
        # What topics inherit; filled by `config.topic` when first asked for.
        self.topic_defaults: dict[str, Value] = {}
        self._texts = {**self.static, **self.dynamic_default, **self.dynamic_broker}
        self._values: dict[str, Value] = {}
        for key, text in self._texts.items():
            setting = known.broker_setting_for(key)
            if setting is None:
                self.unknown.append(key)
            else:
                self._values[key] = setting.parse(text)

    def get(self, key: str) -> Value:
        """The effective value; KeyError for a key that no table knows and that is not set."""
        if key in self._values:
            return self._values[key]
        setting = known.broker_setting_for(key)
        if setting is None:
            return self._texts[key]
        return setting.default

    def get_for_listener(self, listener: str, key: str) -> Value:
        """As `get`, with `listener.name.<listener>.<key>` before it (KIP-103)."""
        own = f"{known.LISTENER_PREFIX}{listener.lower()}.{key}"
        return self._values[own] if own in self._values else self.get(key)

    def get_for_mechanism(self, listener: str, mechanism: str, key: str) -> Value:
        """As `get_for_listener`, with `listener.name.<listener>.<mechanism>.<key>` before it."""
        own = known.mechanism_key(listener, mechanism, key)
        return self._values[own] if own in self._values else self.get_for_listener(listener, key)

    def get_int(self, key: str) -> int:
        value = self.get(key)
        if not isinstance(value, int):
            raise TypeError(f"{key} is {value!r}, not a whole number")
        return value

    def get_bool(self, key: str) -> bool:
        value = self.get(key)
        if not isinstance(value, bool):
            raise TypeError(f"{key} is {value!r}, not true or false")
        return value

    def get_float(self, key: str) -> float:
        value = self.get(key)
        if not isinstance(value, float):
            raise TypeError(f"{key} is {value!r}, not a number")
        return value

    def get_list(self, key: str) -> tuple[str, ...]:
        value = self.get(key)
        if value is None:
            return ()
        if not isinstance(value, tuple):
            raise TypeError(f"{key} is {value!r}, not a list")
        return value

    def get_str(self, key: str) -> str:
        """The text of a setting; empty where it is not set and has no default."""
        value = self.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise TypeError(f"{key} is {value!r}, not text")
        return value

    def is_set(self, key: str) -> bool:
        return key in self._texts

    def source(self, key: str) -> int:
        """Which layer decides about the key."""
        if key in self.dynamic_broker:
            return DYNAMIC_BROKER
        if key in self.dynamic_default:
            return DYNAMIC_DEFAULT_BROKER
        return STATIC_BROKER if key in self.static else DEFAULT

    def with_dynamic(
        self, *, default: Mapping[str, str], broker: Mapping[str, str]
    ) -> tuple[BrokerSettings, list[str]]:
        """These settings with new dynamic layers, and a complaint for each stored entry that had to be left out.

        What is in the store was checked when it was written, perhaps by another version: one bad entry must
        not keep a broker from starting.
        """
        complaints: list[str] = []
        kept_default = _usable(default, complaints)
        kept_broker = _usable(broker, complaints)
        changed = BrokerSettings(self.static, dynamic_default=kept_default, dynamic_broker=kept_broker)
        return changed, complaints

    def changed_keys(self, other: BrokerSettings) -> list[str]:
        """Keys whose effective value differs between the two, sorted."""
        keys = self._texts.keys() | other._texts.keys()
        return sorted(key for key in keys if self._effective(key) != other._effective(key))

    def _effective(self, key: str) -> Value:
        return self.get(key) if known.broker_setting_for(key) is not None else self._texts.get(key)

    # What several settings decide together.

    @property
    def broker_id(self) -> int:
        """The id from broker.id or node.id; -1 where neither is given."""
        return self.get_int("broker.id")

    @property
    def log_dirs(self) -> tuple[str, ...]:
        """log.dirs, or log.dir where that is not set."""
        text = self.get_str("log.dirs") if self.is_set("log.dirs") else self.get_str("log.dir")
        return tuple(filter(None, parse_list(text)))

    @property
    def log_retention_ms(self) -> int:
        """-1 for ever."""
        age = self._first_of(
            ("log.retention.ms", 1), ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)
        )
        return -1 if age < 0 else age

    @property
    def log_roll_ms(self) -> int:
        return self._first_of(("log.roll.ms", 1), ("log.roll.hours", _HOUR_MS))

    @property
    def log_roll_jitter_ms(self) -> int:
        return self._first_of(("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", _HOUR_MS))

    @property
    def log_flush_interval_ms(self) -> int:
        return self._first_of(("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1))

    def _first_of(self, *units: tuple[str, int]) -> int:
        for key, factor in units:
            value = self.get(key)
            if isinstance(value, int):
                return value * factor
        raise TypeError(f"none of {[key for key, _ in units]} has a value or a default")


def _with_both_ids(static: Mapping[str, str]) -> dict[str, str]:
    """broker.id and node.id are one setting; Kafka fills in the one that is missing."""
    texts = dict(static)
    if "broker.id" in texts:
        texts.setdefault("node.id", texts["broker.id"])
    elif "node.id" in texts:
        texts["broker.id"] = texts["node.id"]
    return texts


def _usable(dynamic: Mapping[str, str], complaints: list[str]) -> dict[str, str]:
    usable: dict[str, str] = {}
    for key, text in dynamic.items():
        setting = known.broker_setting_for(key)
        # A throttle's mode is dynamic; so is an override for one listener of a setting that is.
        if setting is not None and setting.mode == READ_ONLY and known.listener_base(key) is None:
            complaints.append(f"{key} cannot change at run time; the stored value is ignored")
            continue
        try:
            if setting is not None:
                setting.parse(text)
        except InvalidConfigError as problem:
            complaints.append(f"the stored value is ignored: {problem.message}")
            continue
        usable[key] = text
    return usable
