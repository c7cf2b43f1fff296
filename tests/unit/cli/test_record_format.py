from __future__ import annotations

import argparse

import pytest

from braidlog.cli.record_bytes import shown
from braidlog.cli.record_format import RecordFormat, Style
from braidlog.client.consumer.record import ConsumerRecord

RECORD = ConsumerRecord("orders", 3, 7, 1_700_000_000_123, b"k", b"\xffv", (("a", b"1"), ("b", None)))


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
    assert RecordFormat(text).format(RECORD, Style(null=b"NIL")) == printed


def test_nulls_and_missing_timestamps() -> None:
    record = ConsumerRecord("t", 0, 0, -1, None, None)
    assert RecordFormat("%k|%v|%K|%V|%T|%h").format(record, Style()) == b"null|null|-1|-1|-|"


def test_a_timestamp_beyond_the_calendar() -> None:
    record = ConsumerRecord("t", 0, 0, (1 << 63) - 1, None, None)
    assert RecordFormat("%T").format(record, Style()) == b"9223372036854775807"


@pytest.mark.parametrize("text", ["%z", "50%", r"\q"])
def test_unknown_fields(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        RecordFormat(text)


def test_keys_and_values_in_other_formats() -> None:
    style = Style(key=shown("hex"), value=shown("base64"))
    assert RecordFormat("%k %v %K %V").format(RECORD, style) == b"6b /3Y= 1 2"
