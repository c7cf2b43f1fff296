"""Options that several commands share, and the types of their values."""

from __future__ import annotations

import argparse
import os
from datetime import datetime
from typing import TYPE_CHECKING, Final

from braidlog.core.errors import UserError

if TYPE_CHECKING:
    from braidlog.client.cluster import Cluster

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def add_connection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--bootstrap",
        "--bootstrap-server",
        metavar="HOST:PORT",
        default=os.environ.get("BRAIDLOG_BOOTSTRAP", DEFAULT_BOOTSTRAP),
        help=f"a broker of the cluster (default {DEFAULT_BOOTSTRAP}, or $BRAIDLOG_BOOTSTRAP)",
    )
    parser.add_argument(
        "--request-timeout",
        metavar="SECONDS",
        type=seconds,
        default=30.0,
        help="how long to wait for each answer (default 30)",
    )


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", choices=("table", "json"), default="table", help="for people or for scripts")


def connect(options: argparse.Namespace) -> Cluster:
    # Commands that need no broker do not pay for the client.
    from braidlog.client.cluster import Cluster

    return Cluster(options.bootstrap, options.request_timeout)


def pairs(texts: list[str], option: str) -> dict[str, str]:
    """`--config key=value …` as a mapping."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UserError(f"{option} {text}: give KEY=VALUE")
        found[key.strip()] = value
    return found


# Types for argparse: a value that is none of theirs is a usage error.


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number of seconds")
    return value


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive whole number")
    return int(text)


def not_negative(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 0 up")
    return int(text)


def timestamp_ms(text: str) -> int:
    """Milliseconds since 1970, or ISO 8601; without a zone the local one is meant."""
    if text.isdecimal():
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError) as problem:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither milliseconds since 1970 nor ISO 8601 such as 2024-05-01T12:00:00Z"
        ) from problem


def unescaped(text: str) -> str:
    r"""Text with `\n`, `\t`, `\r`, `\0`, `\\` and `\xNN` as shells hand them over."""
    out: list[str] = []
    rest = iter(range(len(text)))
    for at in rest:
        sign = text[at]
        following = text[at + 1 : at + 2]
        if sign != "\\" or not following:
            out.append(sign)
        elif following == "x":
            try:
                out.append(chr(int(text[at + 2 : at + 4], 16)))
            except ValueError as problem:
                raise argparse.ArgumentTypeError(f"{text!r}: \\x needs two hexadecimal digits") from problem
            for _ in range(3):
                next(rest, None)
        elif following in _ESCAPES:
            out.append(_ESCAPES[following])
            next(rest)
        else:
            raise argparse.ArgumentTypeError(f"{text!r}: unknown escape \\{following}")
    return "".join(out)


def separator(text: str) -> str:
    """Unescaped text of at least one character."""
    plain = unescaped(text)
    if not plain:
        raise argparse.ArgumentTypeError("a separator needs at least one character")
    return plain
