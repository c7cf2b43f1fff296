"""What values a setting takes: small rules that name the problem instead of answering yes or no."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeAlias

Value: TypeAlias = "bool | int | float | str | tuple[str, ...] | None"


class Rule:
    """A check of one typed value; `text` tells people what it lets through."""

    __slots__ = ("_check", "text", "words")

    def __init__(self, text: str, check: Callable[[Value], str | None], words: tuple[str, ...] = ()) -> None:
        self.text = text
        self._check = check
        # The only values there are, where a rule names them all.
        self.words = words

    def problem(self, value: Value) -> str | None:
        """What is wrong with the value and what is allowed instead; none for a good value."""
        return self._check(value)


def at_least(low: int) -> Rule:
    return between(low, None)


def between(low: float, high: float | None) -> Rule:
    text = f"{low} or more" if high is None else f"{low} to {high}"

    def check(value: Value) -> str | None:
        if not isinstance(value, int | float):
            return f"a value is needed: {text}"
        # Written so that NaN fails.
        if value >= low and (high is None or value <= high):
            return None
        return f"expected {text}"

    return Rule(text, check)


def one_of(*allowed: str, any_case: bool = False) -> Rule:
    text = ", ".join(allowed)
    accepted = {word.upper() for word in allowed} if any_case else set(allowed)

    def check(value: Value) -> str | None:
        word = value.upper() if any_case and isinstance(value, str) else value
        return None if word in accepted else f"expected one of {text}"

    other_case = tuple(word.swapcase() for word in allowed) if any_case else ()
    return Rule(text, check, allowed + other_case)


def each_of(*allowed: str) -> Rule:
    text = "any of " + ", ".join(allowed)

    def check(value: Value) -> str | None:
        for word in value if isinstance(value, tuple) else ():
            if word not in allowed:
                return f"{word or 'an empty entry'} is not known: expected {text}"
        return None

    return Rule(text, check)


def matching(text: str, pattern: str) -> Rule:
    """Every entry of a list has the form."""

    def check(value: Value) -> str | None:
        for word in value if isinstance(value, tuple) else ():
            if not re.fullmatch(pattern, word):
                return f"{word!r} has the wrong form: expected {text}"
        return None

    return Rule(text, check)


def _not_empty(value: Value) -> str | None:
    return "must not be empty" if value == "" else None


def _not_null(value: Value) -> str | None:
    return "a value is needed" if value is None else None


def _address(value: Value) -> str | None:
    if not value:
        return None
    port = str(value).rpartition(":")[2]
    if ":" in str(value) and re.fullmatch("[0-9]{1,5}", port) and int(port) < 65536:
        return None
    return "expected host:port with a port from 0 to 65535"


def _gzip_level(value: Value) -> str | None:
    good = isinstance(value, int) and (value == -1 or 1 <= value <= 9)
    return None if good else "expected 1 to 9, or -1 for the library's choice"


def _throttled(value: Value) -> str | None:
    """`*`, or partition:broker pairs (KIP-73)."""
    if value == ("*",):
        return None
    for word in value if isinstance(value, tuple) else ():
        if not re.fullmatch(r"([0-9]+:[0-9]+)?", word):
            return f"{word!r} is neither a pair such as 0:101 (partition:broker) nor a lone *"
    return None


def _pool_size(value: Value) -> str | None:
    good = isinstance(value, int) and (value == -1 or value >= 1)
    return None if good else "expected 1 or more, or -1 for the general pool's size"


def _python_callable(value: Value) -> str | None:
    if not value or re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*", str(value)):
        return None
    return (
        "Java classes cannot be loaded: write it in Python, and name it as package.module:object, where the object is "
        "a function, or a class that is made without arguments and called"
    )


NON_EMPTY: Final = Rule("not empty", _not_empty)
NOT_NULL: Final = Rule("not null", _not_null)
GZIP_LEVEL: Final = Rule("1 to 9, or -1", _gzip_level)
POOL_SIZE: Final = Rule("1 or more, or -1", _pool_size)
VOTERS: Final = matching("id@host:port entries", r"[0-9]+@.+:[0-9]+")
ADDRESS_OR_EMPTY: Final = Rule("host:port, or nothing", _address)
PYTHON_CALLABLE: Final = Rule("package.module:object", _python_callable)
ADDRESSES: Final = matching("host:port entries", r".+:[0-9]+")
THROTTLED_REPLICAS: Final = Rule("* or partition:broker pairs, comma separated", _throttled)
COMPRESSION: Final = one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
CLEANUP: Final = each_of("compact", "delete")
TIMESTAMP_TYPE: Final = one_of("CreateTime", "LogAppendTime")
SECURITY_PROTOCOL: Final = one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")

# Release -> how many internal versions (IV0 ...) it had; the oldest ones have none.
_RELEASES: Final = {
    "0.8.0": 0, "0.8.1": 0, "0.8.2": 0, "0.9.0": 0, "0.10.0": 2, "0.10.1": 3, "0.10.2": 1, "0.11.0": 3,
    "1.0": 1, "1.1": 1, "2.0": 2, "2.1": 3, "2.2": 2, "2.3": 2, "2.4": 2, "2.5": 1, "2.6": 1, "2.7": 3,
    "2.8": 2, "3.0": 2, "3.1": 1, "3.2": 1, "3.3": 4, "3.4": 1, "3.5": 3, "3.6": 3, "3.7": 5,
    "3.8": 1, "3.9": 1, "4.0": 2,
}  # fmt: skip
# Not out when 3.9 was: known to it by its internal versions alone.
_UNRELEASED: Final = "4.0"


def _release(value: Value) -> str | None:
    """`3.9-IV0`, `3.9`, and what follows the release number is ignored as in `3.9.1`."""
    if isinstance(value, str):
        parts = value.split(".")
        short = ".".join(parts[: 3 if value.startswith("0.") else 2])
        release, dash, internal = short.partition("-IV")
        known = _RELEASES.get(release)
        if known is not None and (internal in map(str, range(known)) if dash else release != _UNRELEASED):
            return None
    return "expected a release of Kafka such as 3.9 or 3.9-IV0"


def last_internal_version(version: str) -> str:
    """`0.10.2` as Kafka describes it, `0.10.2-IV0`; the oldest releases have no internal versions."""
    parts = version.split(".")
    short = ".".join(parts[: 3 if version.startswith("0.") else 2])
    count = _RELEASES.get(short, 0)
    return f"{short}-IV{count - 1}" if count else short


RELEASE: Final = Rule("a release of Kafka, such as 3.9 or 3.9-IV0", _release)
