"""What a check found."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

OK: Final = "ok"
WARNING: Final = "warning"
PROBLEM: Final = "problem"


class Finding(NamedTuple):
    """`advice` says what to do; empty where nothing needs to be done."""

    check: str
    status: str
    text: str
    advice: str = ""


def ok(check: str, text: str) -> Finding:
    return Finding(check, OK, text)


def warning(check: str, text: str, advice: str) -> Finding:
    return Finding(check, WARNING, text, advice)


def problem(check: str, text: str, advice: str) -> Finding:
    return Finding(check, PROBLEM, text, advice)


def listing(names: Iterable[str], most: int = 5) -> str:
    """Names for a sentence: the first few, and how many more there are."""
    every = list(names)
    shown = ", ".join(every[:most])
    return shown if len(every) <= most else f"{shown} and {len(every) - most} more"
