from __future__ import annotations

import argparse
from typing import Any

import pytest

from braidlog.cli.records.byte_formats import shown
from braidlog.cli.records.format_string import RecordFormat, Style
from braidlog.wire.records.reading import Record
from support.printed_records import printed

RECORD = Record(7, 1_700_000_000_123, b"k", b"\xffv", (("a", b"1"), ("b", None)))


def shape(text: str, style: Style | None = None) -> Any:
    return RecordFormat(text).of_partition("orders", 3, style or Style())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%v", b"\xffv"),
        ("%n-%p@%o", b"orders-3@7"),
        ("%k=%v", b"k=\xffv"),
        ("%K %V", b"1 2"),
        ("%t", b"1700000000123"),
        ("%T", b"2023-11-14T22:13:20.123Z"),
        ("%h", b"a=1,b=NIL"),
        ("100%% %%k", b"100% %k"),
        (r"%o\t%k\x00", b"7\tk\0"),
        ("", b""),
        ("plain", b"plain"),
    ],
)
def test_fields(text: str, expected: bytes) -> None:
    assert printed(shape(text, Style(null=b"NIL")), RECORD) == expected


def test_many_records() -> None:
    """Nulls, short and long values, numbers of any size: each stands in its own line."""
    records = [
        Record(
            offset=997 + number,
            timestamp=1_700_000_000_998 + number,
            key=None if number % 3 == 0 else b"k" * number,
            value=None if number % 5 == 0 else b"v" * (number * 7 % 30),
            headers=() if number % 4 else (("h", b"%d" % number), ("name-of-a-header", None)),
        )
        for number in range(40)
    ]
    text = printed(shape("%n %p %o %t %k %v %K %V %h", Style(end=b"\n")), *records)
    assert text.decode().splitlines() == [
        f"orders 3 {each.offset} {each.timestamp} {(each.key or b'null' * (each.key is None)).decode()} "
        f"{(each.value or b'null' * (each.value is None)).decode()} "
        f"{-1 if each.key is None else len(each.key)} {-1 if each.value is None else len(each.value)} "
        f"{f'h={each.offset - 997},name-of-a-header=null' if each.headers else ''}"
        for each in records
    ]


def test_nulls_and_missing_timestamps() -> None:
    record = Record(0, -1, None, None)
    assert printed(shape("%k|%v|%K|%V|%t|%T|%h"), record) == b"null|null|-1|-1|-1|-|"


def test_a_timestamp_beyond_the_calendar() -> None:
    record = Record(0, (1 << 63) - 1, None, None)
    assert printed(shape("%T"), record) == b"9223372036854775807"


@pytest.mark.parametrize("text", ["%z", "50%", r"\q"])
def test_unknown_fields(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        RecordFormat(text)


def test_keys_and_values_in_other_formats() -> None:
    style = Style(key=shown("hex"), value=shown("base64"))
    assert printed(shape("%k %v %K %V", style), RECORD) == b"6b /3Y= 1 2"
