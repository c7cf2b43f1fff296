"""The words of --offset."""

from __future__ import annotations

import argparse

import pytest

from braidlog.cli.starts import At, Range, Start, offset_range

NOON = 1_704_110_400_000


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("earliest", Range(Start(At.EARLIEST))),
        ("beginning", Range(Start(At.EARLIEST))),
        ("end", Range(Start(At.LATEST))),
        ("committed", Range(Start(At.COMMITTED))),
        ("12", Range(Start(At.OFFSET, 12))),
        ("-3", Range(Start(At.BEFORE_END, 3))),
        ("end-3", Range(Start(At.BEFORE_END, 3))),
        ("@5", Range(Start(At.TIME, 5))),
        ("@2024-01-01T12:00:00Z", Range(Start(At.TIME, NOON))),
        ("9223372036854775807", Range(Start(At.OFFSET, 9223372036854775807))),
        ("10:20", Range(Start(At.OFFSET, 10), Start(At.OFFSET, 20))),
        ("10:10", Range(Start(At.OFFSET, 10), Start(At.OFFSET, 10))),
        (":20", Range(Start(At.EARLIEST), Start(At.OFFSET, 20))),
        ("10:", Range(Start(At.OFFSET, 10))),
        ("-10:", Range(Start(At.BEFORE_END, 10))),
        ("-10:-2", Range(Start(At.BEFORE_END, 10), Start(At.BEFORE_END, 2))),
        ("earliest:latest", Range(Start(At.EARLIEST), Start(At.LATEST))),
        ("@5:@9", Range(Start(At.TIME, 5), Start(At.TIME, 9))),
        ("@2024-01-01T12:00:00Z:@2024-01-01T12:00:01Z", Range(Start(At.TIME, NOON), Start(At.TIME, NOON + 1000))),
        ("@2024-01-01T12:00:00+00:00:latest", Range(Start(At.TIME, NOON), Start(At.LATEST))),
        ("7:@2024-01-01T12:00:00Z", Range(Start(At.OFFSET, 7), Start(At.TIME, NOON))),
        ("@2024-01-01T12:00Z:", Range(Start(At.TIME, NOON))),
    ],
)
def test_places_and_ranges(text: str, meant: Range) -> None:
    assert offset_range(text) == meant


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "is none of"),
        (":", "is none of"),
        ("yesterday", "is none of"),
        ("5:yesterday", "is none of"),
        ("1:2:3", "is none of"),
        ("@noon", "neither milliseconds since 1970 nor ISO 8601"),
        ("20:10", "ends before it begins"),
        ("-2:-10", "ends before it begins"),
        ("@9:@5", "ends before it begins"),
        ("committed:20", "not for groups"),
        ("9223372036854775808", "a whole number from 0 up to 9223372036854775807"),
        ("12345678901234567890123", "a whole number from 0 up to"),
        ("end-12345678901234567890123", "a whole number from 0 up to"),
        ("0:12345678901234567890123", "a whole number from 0 up to"),
        ("²", "is none of"),
    ],
)
def test_mistakes(text: str, reported: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=reported):
        offset_range(text)


def test_a_time_beyond_64_bits() -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="12345678901234567890123"):
        offset_range("@12345678901234567890123")
