"""Columns to batches: the bytes of the way over objects, split where a batch is full, and back again."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.protocol_errors import InvalidRecordError, MessageTooLargeError
from braidlog.wire.records.batch import HEADER_SIZE
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.columns import RecordColumns
from braidlog.wire.records.columns_building import HeaderColumns, RecordSource, build_bodies
from braidlog.wire.records.columns_slice import SliceReader
from braidlog.wire.records.encoding import encode_header
from braidlog.wire.records.reading import Record
from support.column_cases import bytes_column, plain, records_of, source_of
from support.record_cases import NOW, quick, record_lists

UNBOUNDED = 1 << 30


def as_batch(body: bytes, count: int, base_timestamp: int, max_timestamp: int) -> bytes:
    head = encode_header(body, 0, -1, 0, count - 1, base_timestamp, max_timestamp, -1, -1, -1, count)
    return head + body


@quick
@given(records=record_lists(), shift=st.integers(0, 9), bit=st.integers(0, 9))
def test_the_bytes_are_those_of_build_batch(records: list[Record], shift: int, bit: int) -> None:
    (built,) = build_bodies(source_of(records, shift=shift, bit=bit), None, UNBOUNDED)
    batch = as_batch(built.body, built.count, built.base_timestamp, built.max_timestamp)
    assert batch == build_batch(records)


@quick
@given(data=st.data(), records=record_lists(max_size=12), batch_size=st.integers(62, 400))
def test_splitting_and_order(data: st.DataObject, records: list[Record], batch_size: int) -> None:
    rows = data.draw(st.lists(st.integers(0, len(records) - 1), max_size=12))
    bodies = build_bodies(source_of(records), struct.pack(f"<{len(rows)}i", *rows), batch_size)
    got: list[Record] = []
    room = 0
    for built in bodies:
        chosen = [records[row] for row in rows[len(got) : len(got) + built.count]]
        batch = as_batch(built.body, built.count, built.base_timestamp, built.max_timestamp)
        assert batch == build_batch(chosen)
        assert len(batch) <= batch_size or built.count == 1
        # The batch before could not have held this one's first record.
        assert not room or len(build_batch(chosen[:1])) - HEADER_SIZE + 4 > room
        room = max(batch_size - len(batch), 0)
        got += chosen
    assert got == [records[row] for row in rows]


@quick
@given(records=record_lists())
def test_parse_undoes_build(records: list[Record]) -> None:
    (built,) = build_bodies(source_of(records), None, UNBOUNDED)
    batch = as_batch(built.body, built.count, built.base_timestamp, built.max_timestamp)
    columns = RecordColumns()
    SliceReader(batch, 0, len(batch), 0).read_into(columns)
    assert records_of(columns) == plain(records)


def test_missing_columns_are_null() -> None:
    (built,) = build_bodies(RecordSource(2, timestamp=NOW), None, UNBOUNDED)
    batch = as_batch(built.body, 2, NOW, NOW)
    assert batch == build_batch([Record(timestamp=NOW), Record(timestamp=NOW)])
    assert build_bodies(RecordSource(0), None, UNBOUNDED) == []
    assert build_bodies(RecordSource(5), b"", UNBOUNDED) == []


def test_a_null_list_of_headers_is_none_at_all() -> None:
    headers = HeaderColumns(
        struct.pack("<4i", 0, 1, 2, 3),
        bytes_column([b"a", b"b", b"c"]),
        bytes_column([b"1", None, b"3"]),
        validity=b"\x05",
    )
    (built,) = build_bodies(RecordSource(3, headers=headers), None, UNBOUNDED)
    expected = [Record(headers=(("a", b"1"),)), Record(), Record(headers=(("c", b"3"),))]
    assert as_batch(built.body, 3, -1, -1) == build_batch(expected)


def test_a_header_needs_a_key() -> None:
    headers = HeaderColumns(struct.pack("<2i", 0, 1), bytes_column([None]), bytes_column([b"1"]))
    with pytest.raises(InvalidRecordError, match="row 0 has a header without a key"):
        build_bodies(RecordSource(1, headers=headers), None, UNBOUNDED)


def test_a_record_larger_than_allowed_is_refused() -> None:
    source = RecordSource(2, values=bytes_column([b"x", b"y" * 1000]))
    whole = len(build_batch([Record(value=b"y" * 1000)]))
    assert [built.count for built in build_bodies(source, None, 100, whole)] == [1, 1]
    with pytest.raises(MessageTooLargeError, match=f"row 1 makes a batch of {whole} bytes"):
        build_bodies(source, None, 100, whole - 1)


def test_impossible_timestamps_are_refused() -> None:
    with pytest.raises(InvalidRecordError, match="row 1 has the impossible timestamp -2"):
        build_bodies(RecordSource(2, timestamps=struct.pack("<2q", 0, -2)), None, UNBOUNDED)
