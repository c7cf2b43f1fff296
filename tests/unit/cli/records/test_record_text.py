from __future__ import annotations

import pytest

from braidlog.cli.records.record_text import (
    HEADERS,
    KEY,
    KEY_SIZE,
    LITERAL,
    OFFSET,
    TIME,
    TIMESTAMP,
    VALUE,
    VALUE_SIZE,
    FieldText,
    Headers,
    Part,
    RecordText,
)
from braidlog.wire.records.reading import Record
from support.printed_records import printed


def text(*parts: Part, key: FieldText | None = None, value: FieldText | None = None) -> RecordText:
    def headers(given: Headers) -> bytes:
        return b"%d headers" % len(given)

    return RecordText(list(parts), key or FieldText(), value or FieldText(), b"null", lambda ms: b"at %d" % ms, headers)


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        (OFFSET, b"1234567"),
        (TIMESTAMP, b"999"),
        (TIME, b"at 999"),
        (KEY, b"null"),
        (VALUE, b"a long value of a record"),
        (KEY_SIZE, b"-1"),
        (VALUE_SIZE, b"24"),
        (HEADERS, b"2 headers"),
    ],
)
def test_each_kind_of_field(kind: int, shown: bytes) -> None:
    record = Record(1234567, 999, None, b"a long value of a record", (("a", None), ("b", b"x")))
    assert printed(text(Part(LITERAL, b"<"), Part(kind), Part(LITERAL, b">")), record) == b"<" + shown + b">"


def test_a_decoder_says_how_a_field_stands_there() -> None:
    shape = text(Part(KEY), Part(VALUE), key=FieldText(bytes.upper), value=FieldText(lambda data: b"%d" % len(data)))
    assert printed(shape, Record(key=b"k", value=b"abc")) == b"K3"


@pytest.mark.parametrize(
    ("data", "shown"), [(b"plain", b'"plain"'), (b'say "x"\\', b'"say \\"x\\"\\\\"'), ("grün".encode(), b"DECODED")]
)
def test_printable_text_is_quoted_without_its_decoder(data: bytes, shown: bytes) -> None:
    quoted = FieldText(lambda data: b"DECODED", is_quoted=True)
    assert printed(text(Part(VALUE), value=quoted), Record(value=data)) == shown
