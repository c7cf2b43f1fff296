"""A client's settings: Kafka's names, dotted in a mapping or in snake case as keyword arguments.

Producer(bootstrap_servers="localhost:9092", linger_ms=5)
Producer({"bootstrap.servers": "localhost:9092", "linger.ms": "5"})
Producer(bootstrap_servers="localhost:9092", linger=0.005)        a time without its unit is in seconds
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any, Final

from braidlog.client.errors import SettingError
from braidlog.config.rules import Value
from braidlog.config.setting import BOOLEAN, CLASS, DOUBLE, INT, LIST, LONG, SHORT, Setting
from braidlog.core.protocol_errors import InvalidConfigError

log = logging.getLogger("braidlog.client")

COMMON: Final = "common"
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
ADMIN: Final = "admin"

_MILLISECONDS: Final = ".ms"
_HIDDEN: Final = "[hidden]"
_NUMBERS: Final = (INT, LONG, SHORT, DOUBLE)
_WANTED: Final = {
    BOOLEAN: "give True or False",
    INT: "give a whole number",
    LONG: "give a whole number",
    LIST: "give a list",
}


def definitions(kind: str) -> dict[str, Setting]:
    """Every setting of a kind of client, by its dotted name."""
    rows: list[Setting] = list(import_module("braidlog.client.definitions.common").SETTINGS)
    if kind != COMMON:
        # The later row of a name counts: kinds differ in some defaults.
        rows += import_module(f"braidlog.client.definitions.{kind}").SETTINGS
    return {row.key: row for row in rows}


def without_effect() -> dict[str, Setting]:
    """What Kafka's clients have and ours have no use for; looked at only where something else is unknown."""
    rows: tuple[Setting, ...] = import_module("braidlog.client.definitions.without_effect").SETTINGS
    return {row.key: row for row in rows}


def _legacy(kind: str) -> dict[str, str | None]:
    if kind not in (PRODUCER, CONSUMER):
        return {}
    names: dict[str, str | None] = import_module(f"braidlog.client.definitions.{kind}").LEGACY
    return names


class Settings:
    """Typed values by dotted name; what was not given has Kafka's default."""

    def __init__(self, kind: str, known: Mapping[str, Setting], given: Mapping[str, Any]) -> None:
        self.kind = kind
        self._known = known
        self._given = dict(given)

    @classmethod
    def of(
        cls, kind: str, config: Mapping[str, Any] | None = None, keywords: Mapping[str, Any] | None = None
    ) -> Settings:
        """Check and convert; the keyword arguments win over the mapping."""
        known = definitions(kind)
        legacy = _legacy(kind)
        given: dict[str, Any] = {}
        unused: dict[str, str] = {}
        named = [(str(name), value, True) for name, value in (config or {}).items()]
        named += [(name, value, False) for name, value in (keywords or {}).items()]
        for name, value, from_mapping in named:
            key = name if from_mapping and "." in name else name.replace("_", ".")
            if key in legacy:
                key, value = _modern(key, legacy[key], value)
            if key in known:
                given[key] = _converted(known[key], value)
            elif key + _MILLISECONDS in known:
                given[key + _MILLISECONDS] = _converted(known[key + _MILLISECONDS], _milliseconds(key, value))
            elif key:
                unused[name] = key
        _warn(kind, unused, {key: known[key] for key, value in given.items() if value != known[key].default})
        return cls(kind, known, given)

    def limited(self, key: str, most: int) -> Settings:
        """The same with a number that is at most so large."""
        return Settings(self.kind, self._known, {**self._given, key: min(self.number(key), most)})

    def is_given(self, key: str) -> bool:
        return key in self._given

    def value(self, key: str) -> Any:
        if key in self._given:
            return self._given[key]
        return self._known[key].default

    def number(self, key: str) -> int:
        value = self.value(key)
        if not isinstance(value, int):
            raise SettingError(f"{key} needs a number")
        return value

    def seconds(self, key: str) -> float:
        """A setting in milliseconds, as the clock counts."""
        return self.number(key) / 1000.0

    def flag(self, key: str) -> bool:
        return bool(self.value(key))

    def text(self, key: str) -> str:
        value = self.value(key)
        return "" if value is None else str(value)

    def optional_text(self, key: str) -> str | None:
        """As `text`, but none where nothing was set."""
        return self.text(key) or None

    def items(self, key: str) -> tuple[Any, ...]:
        """Of a list: text, or objects where Kafka has class names."""
        return tuple(self.value(key) or ())

    def object(self, key: str) -> Any:
        """A Python object, where Kafka has a class name."""
        return self.value(key)

    def __repr__(self) -> str:
        shown = {key: _shown(self._known[key], value) for key, value in self._given.items()}
        return f"Settings({self.kind}, {shown})"


def _warn(kind: str, unused: Mapping[str, str], changed: Mapping[str, Setting]) -> None:
    """Of what was asked in vain; as in Kafka that is no error, since a file may serve several programs."""
    idle = {key: row for key, row in changed.items() if row.no_effect}
    if unused:
        theirs = without_effect()
        idle.update((key, theirs[key]) for key in unused.values() if key in theirs)
        unknown = sorted(name for name, key in unused.items() if key not in theirs)
        if unknown:
            log.warning("unused %s settings: %s", kind, ", ".join(unknown))
    for key, row in sorted(idle.items()):
        log.warning("setting %s has no effect: %s", key, row.no_effect)


def _modern(old: str, new: str | None, value: Any) -> tuple[str, Any]:
    if new is None:
        log.warning("setting %s is of clients before 0.9 and has no effect", old)
        return "", value
    log.warning("setting %s is of clients before 0.9; use %s", old, new)
    return new, value


def _milliseconds(key: str, value: Any) -> int:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = float("nan")
    if seconds != seconds or abs(seconds) > 1e12:
        keyword = key.replace(".", "_")
        raise SettingError(f"{keyword}={value!r}: give seconds as a number, or {keyword}_ms in milliseconds")
    return round(seconds * 1000)


def _converted(row: Setting, value: Any) -> Any:
    """The typed value; objects stay as they are where Kafka has class names."""
    if value is None:
        return row.default
    if row.kind == CLASS:
        return value
    if row.kind == LIST and isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return tuple(value)
    if isinstance(value, str):
        text = value
    elif isinstance(value, bool) and row.kind == BOOLEAN:
        text = "true" if value else "false"
    elif row.key == "acks" or (isinstance(value, int) and row.kind in _NUMBERS and not isinstance(value, bool)):
        text = str(value)
    elif isinstance(value, float) and row.kind == DOUBLE:
        text = repr(value)
    elif isinstance(value, float) and value.is_integer() and row.kind in (INT, LONG, SHORT):
        text = str(int(value))
    else:
        raise SettingError(f"{row.key}={_shown(row, value)} has the wrong type; {_WANTED.get(row.kind, 'give text')}")
    try:
        typed: Value = row.parse(text)
    except InvalidConfigError as problem:
        raise SettingError(problem.message or str(problem)) from problem
    return typed


def _shown(row: Setting, value: Any) -> str:
    return _HIDDEN if row.sensitive else repr(value)
