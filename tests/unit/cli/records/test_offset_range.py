"""The words of --offset."""

from __future__ import annotations

import argparse

import pytest

from braidlog.cli.records.offset_range import OffsetKind, OffsetPosition, OffsetRange, offset_range

NOON = 1_704_110_400_000


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("earliest", OffsetRange(OffsetPosition(OffsetKind.EARLIEST))),
        ("beginning", OffsetRange(OffsetPosition(OffsetKind.EARLIEST))),
        ("end", OffsetRange(OffsetPosition(OffsetKind.LATEST))),
        ("committed", OffsetRange(OffsetPosition(OffsetKind.COMMITTED))),
        ("12", OffsetRange(OffsetPosition(OffsetKind.OFFSET, 12))),
        ("-3", OffsetRange(OffsetPosition(OffsetKind.BEFORE_END, 3))),
        ("end-3", OffsetRange(OffsetPosition(OffsetKind.BEFORE_END, 3))),
        ("@5", OffsetRange(OffsetPosition(OffsetKind.TIME, 5))),
        ("@2024-01-01T12:00:00Z", OffsetRange(OffsetPosition(OffsetKind.TIME, NOON))),
        ("9223372036854775807", OffsetRange(OffsetPosition(OffsetKind.OFFSET, 9223372036854775807))),
        ("10:20", OffsetRange(OffsetPosition(OffsetKind.OFFSET, 10), OffsetPosition(OffsetKind.OFFSET, 20))),
        ("10:10", OffsetRange(OffsetPosition(OffsetKind.OFFSET, 10), OffsetPosition(OffsetKind.OFFSET, 10))),
        (":20", OffsetRange(OffsetPosition(OffsetKind.EARLIEST), OffsetPosition(OffsetKind.OFFSET, 20))),
        ("10:", OffsetRange(OffsetPosition(OffsetKind.OFFSET, 10))),
        ("-10:", OffsetRange(OffsetPosition(OffsetKind.BEFORE_END, 10))),
        ("-10:-2", OffsetRange(OffsetPosition(OffsetKind.BEFORE_END, 10), OffsetPosition(OffsetKind.BEFORE_END, 2))),
        ("earliest:latest", OffsetRange(OffsetPosition(OffsetKind.EARLIEST), OffsetPosition(OffsetKind.LATEST))),
        ("@5:@9", OffsetRange(OffsetPosition(OffsetKind.TIME, 5), OffsetPosition(OffsetKind.TIME, 9))),
        (
            "@2024-01-01T12:00:00Z:@2024-01-01T12:00:01Z",
            OffsetRange(OffsetPosition(OffsetKind.TIME, NOON), OffsetPosition(OffsetKind.TIME, NOON + 1000)),
        ),
        (
            "@2024-01-01T12:00:00+00:00:latest",
            OffsetRange(OffsetPosition(OffsetKind.TIME, NOON), OffsetPosition(OffsetKind.LATEST)),
        ),
        (
            "7:@2024-01-01T12:00:00Z",
            OffsetRange(OffsetPosition(OffsetKind.OFFSET, 7), OffsetPosition(OffsetKind.TIME, NOON)),
        ),
        ("@2024-01-01T12:00Z:", OffsetRange(OffsetPosition(OffsetKind.TIME, NOON))),
    ],
)
def test_places_and_ranges(text: str, meant: OffsetRange) -> None:
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
