from __future__ import annotations

import argparse

import pytest

from braidlog.cli.record_format import RecordFormat
from braidlog.wire.records.reading import Record

RECORD = Record(
    offset=7, timestamp=1_700_000_000_123, key=b"k", value=b"\xffv", headers=(("a", b"1"), ("b", None))
)


@pytest.mark.parametrize(
    ("text", "printed"),
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
def test_fields(text: str, printed: bytes) -> None:
    assert RecordFormat(text).format("orders", 3, RECORD, b"NIL") == printed


def test_nulls_and_missing_timestamps() -> None:
    record = Record(offset=0, timestamp=-1)
    assert RecordFormat("%k|%v|%K|%V|%T|%h").format("t", 0, record, b"null") == b"null|null|-1|-1|-|"


def test_a_timestamp_beyond_the_calendar() -> None:
    record = Record(offset=0, timestamp=(1 << 63) - 1)
    assert RecordFormat("%T").format("t", 0, record, b"") == b"9223372036854775807"


@pytest.mark.parametrize("text", ["%z", "50%", r"\q"])
def test_unknown_fields(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        RecordFormat(text)
