from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.cli.record_json import BadRecord, record_from_json, record_to_json
from braidlog.wire.records.reading import Record

CONTENT = st.none() | st.binary(max_size=40) | st.text(max_size=20).map(str.encode)
HEADERS = st.lists(st.tuples(st.text(max_size=10), CONTENT), max_size=4).map(tuple)


@given(
    st.builds(
        Record,
        offset=st.integers(0, 1 << 62),
        timestamp=st.integers(-1, 1 << 62),
        key=CONTENT,
        value=CONTENT,
        headers=HEADERS,
    ),
    st.integers(0, 1000),
)
def test_what_consume_prints_produce_takes(record: Record, partition: int) -> None:
    line = record_to_json("orders", partition, record)
    assert "\n" not in line
    parsed = record_from_json(line.encode(), 5)
    assert parsed.partition == partition
    taken = parsed.record
    assert (taken.timestamp, taken.key, taken.value, taken.headers) == (
        record.timestamp,
        record.key,
        record.value,
        record.headers,
    )


def test_text_stays_text_and_bytes_become_base64() -> None:
    fields = json.loads(record_to_json("t", 0, Record(key="ключ".encode(), value=b"\xff\x00")))
    assert fields["key"] == "ключ"
    assert fields["value"] == {"base64": "/wA="}


def test_everything_may_be_left_out() -> None:
    record, partition = record_from_json(b"{}", 7)
    assert (record.key, record.value, record.headers, record.timestamp, partition) == (None, None, (), 7, None)


def test_headers_may_be_a_plain_object() -> None:
    assert record_from_json(b'{"headers": {"a": "1", "b": null}}', 0).record.headers == (("a", b"1"), ("b", None))


@pytest.mark.parametrize(
    ("line", "told"),
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
def test_mistakes_are_named(line: bytes, told: str) -> None:
    with pytest.raises(BadRecord, match=told):
        record_from_json(line, 0)
