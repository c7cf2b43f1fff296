"""A client's settings: Kafka's names, dotted in a mapping or in snake case as keyword arguments.

Producer(bootstrap_servers="localhost:9092", linger_ms=5)
Producer({"bootstrap.servers": "localhost:9092", "linger.ms": "5"})
Producer(bootstrap_servers="localhost:9092", linger=0.005)        a time without its unit is in seconds

A keyword that is no setting is refused. So is a name in a mapping that is nearly one, or another library's name for
one; any other dotted name there may be meant for another program, since a property file may serve several programs, and
is warned about.
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
# Characters of a value of any length in a message.
_SHOWN: Final = 80
_NUMBERS: Final = (INT, LONG, SHORT, DOUBLE)
_WANTED: Final = {
    BOOLEAN: "give True or False",
    INT: "give a whole number",
    LONG: "give a whole number",
    SHORT: "give a whole number",
    DOUBLE: "give a number",
    LIST: "give a list",
}
# Lists whose entries may be objects, where Kafka has class names.
_OBJECTS: Final = ("interceptor.classes", "partition.assignment.strategy")
# How much alike a name in a mapping and a setting are, for the one to be taken for the other misspelt.
_ALIKE: Final = 0.85
# A keyword is refused in any case: a guess further away may still help.
_SOMEWHAT_ALIKE: Final = 0.6


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
        _check_mapping(kind, config)
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
                if key not in without_effect():
                    _refuse_unknown(kind, name, key, known, from_mapping)
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

    def isolation_level(self) -> int:
        """As requests carry it: 1 for read_committed, else 0."""
        return int(self.text("isolation.level").lower() == "read_committed")

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


def _check_mapping(kind: str, config: object) -> None:
    if config is None or isinstance(config, Mapping):
        return
    if isinstance(config, str) and kind == CONSUMER:
        raise SettingError(
            f"{config!r} is no mapping of settings; topics are named to the consumer once it is made: "
            f"consumer = Consumer(bootstrap_servers=…, group_id=…), then consumer.subscribe([{config!r}])"
        )
    raise SettingError(
        f"{_shortened(config)} is no mapping of settings; give them by keyword (bootstrap_servers='HOST:PORT'), "
        "or as {'bootstrap.servers': 'HOST:PORT'}"
    )


def _refuse_unknown(kind: str, name: str, key: str, known: Mapping[str, Setting], from_mapping: bool) -> None:
    """Raise for a name that is no setting, unless it may be meant for another program that reads the same mapping."""
    from difflib import get_close_matches

    def spelt(setting: str) -> str:
        return setting if from_mapping else setting.replace(".", "_")

    instead: dict[str, str] = import_module("braidlog.client.definitions.other_clients").INSTEAD
    refusal = f"{name} is not a setting of the {'admin client' if kind == ADMIN else kind}"
    if key in instead:
        ours = {setting: spelt(setting) for setting in known}
        raise SettingError(f"{refusal}; {_filled(instead[key], ours)}")
    names = [*known, *(each.removesuffix(_MILLISECONDS) for each in known if each.endswith(_MILLISECONDS))]
    owners = [other for other in (PRODUCER, CONSUMER, ADMIN) if other != kind and _is_setting(key, definitions(other))]
    if owners and from_mapping:
        return
    # Those of another client are right as they are spelt, unless this one has the counterpart (`value_serializer`).
    alike = _ALIKE if owners or (from_mapping and "." in name) else _SOMEWHAT_ALIKE
    close = get_close_matches(key, names, n=1, cutoff=alike)
    if close:
        raise SettingError(f"{refusal}; did you mean {spelt(close[0])}?")
    if owners:
        raise SettingError(f"{refusal} but of the {' and the '.join(owners)}; leave it out")
    if not from_mapping or "." not in name:
        raise SettingError(f"{refusal}; docs/CLIENT_SETTINGS.md has all there are")


def _is_setting(key: str, known: Mapping[str, Setting]) -> bool:
    return key in known or key + _MILLISECONDS in known


def _filled(text: str, names: Mapping[str, str]) -> str:
    """The text with each `{setting}` spelt as the caller spells."""
    for setting, name in names.items():
        text = text.replace(f"{{{setting}}}", name)
    return text


def _warn(kind: str, unused: Mapping[str, str], changed: Mapping[str, Setting]) -> None:
    """Of what was asked in vain."""
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
        return _entries(row, tuple(value))
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


def _entries(row: Setting, entries: tuple[Any, ...]) -> tuple[Any, ...]:
    for each in entries:
        if not isinstance(each, str) and row.key not in _OBJECTS:
            raise SettingError(f"{row.key}: {each!r} in its list has the wrong type; give text")
    return entries


def _shown(row: Setting, value: Any) -> str:
    return _HIDDEN if row.sensitive else repr(value)


def _shortened(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
