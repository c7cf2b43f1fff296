"""Option values are text: numbers, flags, durations and JSON, each refused with where in it the mistake is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from braidlog import TopicPartition
from braidlog.core.errors import UserError

_INT32: Final = 2**31 - 1
_INT64: Final = 2**63 - 1
_DIGITS: Final = 10
_PARTITIONS: Final = '{"topicA": [0, 1], "topicB": [0]}'
_OFFSETS: Final = '{"topicA": {"0": 23, "1": -1}, "topicB": {"0": -2}}'
_TIMESTAMPS: Final = '{"topicA": {"0": 1700000000000, "1": 1700000000000}}'
# What follows a mistake is of no help.
_SHOWN: Final = 24

_DURATION: Final = re.compile(r"([0-9]+)\s*([a-z]*)")
_UNITS_S: Final = {
    "us": 1e-6,
    "ms": 1e-3,
    "": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}


_SIZE: Final = re.compile(r"([0-9]{1,19})\s*(b|[kmgtp]?)b?")
_UNITS_BYTES: Final = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}


# One value


def flag(name: str, text: str) -> bool:
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise UserError(f"option {name}={text!r} is neither true nor false")
    return word == "true"


def positive(name: str, text: str, most: int = _INT64) -> int:
    number = whole(name, text)
    if not 0 < number <= most:
        raise UserError(f"option {name}={text!r} has to be at least 1" + (f" and at most {most}" if number > 0 else ""))
    return number


def positive_int(name: str, text: str) -> int:
    return positive(name, text, _INT32)


def whole(name: str, text: str) -> int:
    try:
        return int(text.strip())
    except ValueError:
        raise UserError(f"option {name}={text!r} is not a whole number") from None


def timestamp_ms(name: str, text: str) -> int:
    number = whole(name, text)
    if not 0 <= number <= _INT64:
        raise UserError(f"option {name}={text!r} is no time: give milliseconds since 1970 (UTC)")
    return number


def seconds(name: str, text: str) -> float:
    """A duration as Spark writes them: 15m, 10s, 500ms; a bare number is in milliseconds."""
    parts = _DURATION.fullmatch(text.strip().lower())
    if parts is None or parts[2] not in _UNITS_S:
        raise UserError(f"option {name}={text!r} is no duration; give one such as 15m, 10s or 500ms")
    return int(parts[1]) * _UNITS_S[parts[2]]


def byte_size(name: str, text: str) -> int:
    """As Spark writes sizes: 64m, 1g, 500kb, in powers of 1024; a bare number is in bytes."""
    parts = _SIZE.fullmatch(text.strip().lower())
    size = int(parts[1]) * _UNITS_BYTES[parts[2] or "b"] if parts else 0
    if not 0 < size <= _INT64:
        raise UserError(f"option {name}={text!r} is no size; give one such as 64m, 1g or a number of bytes")
    return size


def names(name: str, text: str) -> tuple[str, ...]:
    found = tuple(dict.fromkeys(filter(None, (word.strip() for word in text.split(",")))))
    if not found:
        raise UserError(f"option {name}={text!r} names no topic; give names with commas between them")
    return found


# JSON by topic and partition


def partitions(name: str, text: str) -> tuple[TopicPartition, ...]:
    """`{"topic": [0, 1]}`"""
    found: list[TopicPartition] = []
    for topic, listed in _by_topic(name, text, _PARTITIONS).items():
        if not isinstance(listed, list):
            raise _misshapen(name, f'at "{topic}" there is {_shown(listed)} and not a list of partitions', _PARTITIONS)
        for each in listed:
            if not _is_integer(each) or not 0 <= each <= _INT32:
                raise _misshapen(name, f'at "{topic}" there is {_shown(each)} and not a partition', _PARTITIONS)
            found.append(TopicPartition(topic, each))
    if not found:
        raise UserError(f"option {name}={text!r} names no partition; expected is e.g. {_PARTITIONS}")
    return tuple(dict.fromkeys(found))


def offsets(name: str, text: str) -> dict[TopicPartition, int]:
    """`{"topic": {"0": 23}}`, with -1 for latest and -2 for earliest"""
    return _numbers(name, text, "an offset, -1 (latest) or -2 (earliest)", lambda number: number >= -2, _OFFSETS)


def timestamps(name: str, text: str) -> dict[TopicPartition, int]:
    """`{"topic": {"0": 1700000000000}}`"""
    return _numbers(name, text, "a time in milliseconds since 1970", lambda number: number >= 0, _TIMESTAMPS)


def _numbers(name: str, text: str, wanted: str, fits: Callable[[int], bool], example: str) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, by_partition in _by_topic(name, text, example).items():
        if not isinstance(by_partition, dict):
            what = f'at "{topic}" there is {_shown(by_partition)} and not an object with partitions'
            raise _misshapen(name, what, example)
        for partition, number in by_partition.items():
            if not _is_partition(partition):
                raise _misshapen(name, f'at "{topic}" there is {_shown(partition)} and not a partition', example)
            if not _is_integer(number) or not fits(number) or number > _INT64:
                what = f'at "{topic}", "{partition}" there is {_shown(number)} and not {wanted}'
                raise _misshapen(name, what, example)
            found[TopicPartition(topic, int(partition))] = number
    return found


def _by_topic(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text, object_pairs_hook=_without_duplicates)
    except json.JSONDecodeError as problem:
        found = text[problem.pos : problem.pos + _SHOWN]
        there = f"line {problem.lineno}, column {problem.colno}" if problem.lineno > 1 else f"column {problem.colno}"
        before = f"before {found!r}" if found.strip() else "where it ends"
        what = f"{problem.msg[:1].lower()}{problem.msg[1:]} at {there}, {before}"
        raise UserError(f"option {name} is not valid JSON: {what}; expected is e.g. {example}") from None
    except _Duplicate as problem:
        raise _misshapen(name, f'"{problem}" is there twice', example) from None
    except (ValueError, RecursionError):
        # Python reads no number of thousands of digits, and nothing nested that deep.
        raise UserError(
            f"option {name} has a number that is too large or too deep a nesting; expected is e.g. {example}"
        ) from None
    if not isinstance(value, dict):
        raise _misshapen(name, f"it is {_shown(value)} and not an object with topics", example)
    return value


class _Duplicate(Exception):
    pass


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = [key for key, _ in pairs]
        raise _Duplicate(next(key for key in seen if seen.count(key) > 1))
    return found


def _is_partition(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _DIGITS and int(text) <= _INT32


def _is_integer(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _shown(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _misshapen(name: str, what: str, example: str) -> UserError:
    return UserError(f"option {name}: {what}; expected is e.g. {example}")
