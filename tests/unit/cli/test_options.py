from __future__ import annotations

import argparse

import pytest

from braidlog.cli.options import not_negative, pairs, positive, seconds, separator, timestamp_ms, unescaped
from braidlog.core.errors import UserError


@pytest.mark.parametrize(
    ("text", "plain"),
    [("", ""), (":", ":"), (r"\t", "\t"), (r"a\nb", "a\nb"), (r"\x41\x00", "A\0"), (r"\\n", r"\n"), ("\\", "\\")],
)
def test_escapes(text: str, plain: str) -> None:
    assert unescaped(text) == plain


@pytest.mark.parametrize("text", [r"\q", r"\x", r"\xg0"])
def test_bad_escapes(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        unescaped(text)


def test_a_separator_is_not_empty() -> None:
    assert separator(r"\t") == "\t"
    with pytest.raises(argparse.ArgumentTypeError):
        separator("")


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("1700000000000", 1_700_000_000_000),
        ("2023-11-14T22:13:20Z", 1_700_000_000_000),
        ("2023-11-14T23:13:20.5+01:00", 1_700_000_000_500),
    ],
)
def test_times(text: str, ms: int) -> None:
    assert timestamp_ms(text) == ms


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "2023-13-01"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="ISO 8601"):
        timestamp_ms(text)


def test_numbers() -> None:
    assert positive("3") == 3
    assert not_negative("0") == 0
    assert seconds("0.5") == 0.5
    for parse, text in ((positive, "0"), (positive, "-1"), (not_negative, "x"), (seconds, "0"), (seconds, "nan")):
        with pytest.raises(argparse.ArgumentTypeError):
            parse(text)


def test_pairs() -> None:
    assert pairs(["a=1", " b =x=y", "c="], "--config") == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(UserError, match="--config oops: give KEY=VALUE"):
        pairs(["oops"], "--config")
