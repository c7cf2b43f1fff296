from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.cli.records.byte_formats import FORMATS, json_value
from braidlog.cli.records.json_format import BadRecord, JsonFormat, record_from_json
from braidlog.wire.records.reading import Record
from support.printed_records import printed


def line_of(record: Record, key_format: str = "raw", value_format: str = "raw", partition: int = 0) -> bytes:
    return printed(JsonFormat(key_format, value_format).of_partition("orders", partition, end=b""), record)


CONTENT = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
HEADERS = st.lists(st.tuples(st.text(max_size=10), CONTENT), max_size=4).map(tuple)


@given(
    st.integers(0, 1 << 62),
    st.integers(-1, 1 << 62),
    CONTENT,
    CONTENT,
    HEADERS,
    st.integers(0, 1000),
    st.sampled_from(("raw", "hex", "base64")),
)
def test_what_consume_prints_produce_takes(
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
    partition: int,
    form: str,
) -> None:
    line = line_of(Record(offset, timestamp, key, value, headers), form, form, partition)
    assert b"\n" not in line
    parsed = record_from_json(line, 5)
    assert parsed.partition == partition
    taken = parsed.record
    assert (taken.timestamp, taken.key, taken.value, taken.headers) == (timestamp, key, value, headers)


@given(st.sampled_from(FORMATS), CONTENT)
def test_every_format_is_one_line_that_is_taken_back(form: str, value: bytes | None) -> None:
    line = line_of(Record(0, 0, None, value), value_format=form)
    assert b"\n" not in line
    record_from_json(line, 0)


@given(CONTENT, CONTENT, HEADERS)
def test_the_line_is_what_a_json_library_writes(key: bytes | None, value: bytes | None, headers: Any) -> None:
    plain = json_value("raw")
    fields = {
        "topic": "orders",
        "partition": 0,
        "offset": 7,
        "timestamp": 5,
        "key": plain(key),
        "value": plain(value),
        "headers": [{"key": name, "value": plain(content)} for name, content in headers],
    }
    assert line_of(Record(7, 5, key, value, headers)) == json.dumps(fields, ensure_ascii=False).encode()


def test_text_stays_text_and_bytes_become_base64() -> None:
    fields = json.loads(line_of(Record(0, 0, "ключ".encode(), b"\xff\x00")))
    assert fields["key"] == "ключ"
    assert fields["value"] == {"base64": "/wA="}


def test_documents_stand_as_what_they_are() -> None:
    fields = json.loads(line_of(Record(0, 0, b"{", b'{"a": [1, null]}'), "json", "json"))
    assert fields["key"] == "{", "no document"
    assert fields["value"] == {"json": {"a": [1, None]}}
    assert record_from_json(json.dumps(fields).encode(), 0).record.value == b'{"a":[1,null]}'


def test_everything_may_be_left_out() -> None:
    record, partition = record_from_json(b"{}", 7)
    assert (record.key, record.value, record.headers, record.timestamp, partition) == (None, None, (), 7, None)


def test_headers_may_be_a_plain_object() -> None:
    assert record_from_json(b'{"headers": {"a": "1", "b": null}}', 0).record.headers == (("a", b"1"), ("b", None))


@pytest.mark.parametrize(
    ("line", "reported"),
    [
        (b"{", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"valeu": "x"}', "unknown field 'valeu'"),
        (b'{"value": 5}', "value must be text"),
        (b'{"value": {"base64": "%"}}', "not valid base64"),
        (b'{"key": "\\ud800"}', "surrogate"),
        (b'{"partition": "1"}', "partition must be a whole number"),
        (b'{"timestamp": true}', "timestamp must be a whole number"),
        (b'{"headers": [{"name": "a"}]}', "each header"),
        (b'{"headers": 5}', "headers must be"),
    ],
)
def test_mistakes_are_named(line: bytes, reported: str) -> None:
    with pytest.raises(BadRecord, match=reported):
        record_from_json(line, 0)
