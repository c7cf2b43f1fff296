from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest

from braidlog.cli.options import (
    INT16_MAX,
    INT32_MAX,
    INT64_MAX,
    UINT16_MAX,
    broker_number,
    offset_number,
    pairs,
    partition_count,
    partition_number,
    port_number,
    positive,
    producer_number,
    replication_factor,
    seconds,
    separator,
    timeout_seconds,
    timestamp_ms,
    unescaped,
)
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


@pytest.mark.parametrize("text", ["", "yesterday", "-5", "2023-13-01", "²"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="ISO 8601"):
        timestamp_ms(text)


@pytest.mark.parametrize("text", [str(INT64_MAX + 1), "1" + "0" * 22, "9" * 5000])
def test_a_time_fits_the_protocol(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="milliseconds since 1970 up to"):
        timestamp_ms(text)


def test_no_record_is_older_than_1970() -> None:
    # -1 and -2 are signs of the protocol: the end and the start of a partition.
    with pytest.raises(argparse.ArgumentTypeError, match="before 1970"):
        timestamp_ms("1969-12-31T23:59:59.999Z")


def test_numbers() -> None:
    assert positive("3") == 3
    assert seconds("0.5") == 0.5
    assert timeout_seconds("2147483") == 2_147_483.0
    for text in ("0", "nan", "inf", "-1", "1e22", "0.0001", "2147484"):
        with pytest.raises(argparse.ArgumentTypeError, match="positive number of seconds"):
            timeout_seconds(text)


@pytest.mark.parametrize(
    ("parse", "least", "most"),
    [
        (positive, 1, INT64_MAX),
        (partition_count, 1, INT32_MAX),
        (replication_factor, 1, INT16_MAX),
        (broker_number, 0, INT32_MAX),
        (partition_number, 0, INT32_MAX),
        (offset_number, 0, INT64_MAX),
        (producer_number, 0, INT64_MAX),
        (port_number, 0, UINT16_MAX),
    ],
)
def test_numbers_end_where_the_protocol_does(parse: Callable[[str], int], least: int, most: int) -> None:
    assert parse(str(least)) == least
    assert parse(str(most)) == most
    for bad in (str(least - 1), str(most + 1), "-1", "", "abc", "1e3", "²", "٣", "1" + "0" * 22, "9" * 5000):
        with pytest.raises(argparse.ArgumentTypeError, match=f"up to {most}"):
            parse(bad)


def test_pairs() -> None:
    assert pairs(["a=1", " b =x=y", "c="], "--config") == {"a": "1", "b": "x=y", "c": ""}
    with pytest.raises(UserError, match="--config oops: give KEY=VALUE"):
        pairs(["oops"], "--config")
