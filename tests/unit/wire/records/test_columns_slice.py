"""Fetched slices to columns: positions, portions, transactions, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.protocol_errors import CorruptMessageError, InvalidRecordError
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.columns import RecordColumns
from braidlog.wire.records.columns_slice import SliceReader
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record, read_records
from braidlog.wire.records.varint import INT64_MAX, INT64_MIN
from support.column_cases import plain, records_of, strings_of
from support.record_cases import NOW, quick, record_lists, resigned

CODECS = range(5)


def numbered(count: int, first: int = 0) -> list[Record]:
    return [Record(first + each, NOW + each, b"k%d" % each, b"value %d" % (first + each)) for each in range(count)]


def read_all(data: bytes, position: int = 0, **limits: int) -> list[Record]:
    columns = RecordColumns()
    SliceReader(data, 0, len(data), position, **limits).read_into(columns)
    return records_of(columns)


@quick
@given(records=record_lists(with_headers=False), codec=st.integers(0, 3), magic=st.integers(0, 1))
def test_old_messages_come_back(records: list[Record], codec: int, magic: int) -> None:
    data = build_message_set(records, magic=magic, codec=codec)
    columns = RecordColumns()
    SliceReader(data, 0, len(data), 0).read_into(columns)
    assert records_of(columns) == plain(read_records(data))
    assert sum(count for _, count in columns.timestamp_type_runs) == len(records)


@quick
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=4),
    codec=st.sampled_from(CODECS),
    position=st.integers(0, 20),
    until=st.integers(0, 20),
    most=st.integers(1, 6),
)
def test_a_slice_is_read_in_portions(sizes: list[int], codec: int, position: int, until: int, most: int) -> None:
    data = b""
    expected: list[Record] = []
    for size in sizes:
        batch = numbered(size, len(expected))
        data += build_batch(batch, base_offset=len(expected), codec=codec)
        expected += batch
    reader = SliceReader(data + b"cut off", 0, len(data) + 7, position, until=until)
    got: list[Record] = []
    while not reader.is_done:
        columns = RecordColumns()
        assert reader.read_into(columns, most) <= most
        portion = records_of(columns)
        if portion:
            assert reader.position > portion[-1].offset
        got += portion
    assert got == [record for record in expected if position <= record.offset < until]
    assert reader.position == max(position, min(len(expected), until))


def test_compacted_offsets_and_empty_batches() -> None:
    kept = [Record(3, NOW, b"a", b"1"), Record(7, NOW, b"b", b"2")]
    data = build_batch(kept, base_offset=0, keep_offsets=True) + build_batch([], base_offset=8)
    reader = SliceReader(data, 0, len(data), 4)
    columns = RecordColumns()
    reader.read_into(columns)
    assert records_of(columns) == kept[1:]
    assert reader.position == 9


def test_wanted_columns_alone_are_filled() -> None:
    data = build_batch([Record(0, NOW, b"key", b"value", (("h", b"1"),)), Record(1, NOW, None, None)])
    columns = RecordColumns(keys=False, headers=False, offsets=False, timestamps=False)
    SliceReader(data, 0, len(data), 0).read_into(columns)
    assert columns.count == 2
    assert strings_of(columns.values, columns.buffers) == [b"value", None]
    assert columns.keys.count == columns.header_keys.count == 0
    assert columns.header_starts.getvalue() == columns.offsets.getvalue() == columns.timestamps.getvalue() == b""


def transaction(first: int, producer: int, *, commit: bool) -> bytes:
    return build_batch(
        numbered(2, first),
        base_offset=first,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    ) + build_end_txn_marker(
        commit=commit, producer_id=producer, producer_epoch=0, timestamp=NOW, base_offset=first + 2
    )


def test_aborted_transactions_and_markers_are_skipped() -> None:
    data = transaction(0, 1, commit=False) + transaction(3, 1, commit=True) + transaction(6, 2, commit=False)
    reader = SliceReader(data, 0, len(data), 0, aborted=[(2, 6), (1, 0)])
    got: list[int] = []
    while not reader.is_done:
        # One at a time, so that the reader must remember between its portions which transactions are over.
        columns = RecordColumns()
        reader.read_into(columns, 1)
        got += [record.offset for record in records_of(columns)]
    assert got == [3, 4]
    assert reader.position == 9
    assert [record.offset for record in read_all(data)] == [0, 1, 3, 4, 6, 7]


def test_what_is_whole_comes_before_the_damage() -> None:
    good = build_batch(numbered(3))
    bad = bytearray(build_batch(numbered(2, 3), base_offset=3))
    bad[-1] ^= 1
    data = good + bytes(bad)
    reader = SliceReader(data, 0, len(data), 0)
    columns = RecordColumns()
    assert reader.read_into(columns) == 3
    assert records_of(columns) == numbered(3)
    assert not reader.is_done
    assert reader.position == 3
    with pytest.raises(CorruptMessageError):
        reader.read_into(RecordColumns())
    assert SliceReader(data, 0, len(data), 0).read_into(RecordColumns(), check=False) == 3


def test_a_batch_that_breaks_midway_leaves_nothing_behind() -> None:
    good = build_batch(numbered(3))
    many = build_batch(
        [Record(0, NOW, b"key", b"value" * 9, (("h", None),)), Record(1, NOW, None, b"x")], base_offset=3
    )
    data = good + resigned(many[:-1] + b"\x02")
    columns = RecordColumns()
    assert SliceReader(data, 0, len(data), 0).read_into(columns) == 3
    assert records_of(columns) == numbered(3)


def test_offsets_and_timestamps_past_64_bits_are_refused() -> None:
    data = build_batch(numbered(1), base_offset=INT64_MAX - 5)
    with pytest.raises(InvalidRecordError, match="impossible offset"):
        read_all(data)
    assert read_all(build_batch([Record(0, INT64_MAX, b"", b""), Record(1, 0, None, None)])) == [
        Record(0, INT64_MAX, b"", b""),
        Record(1, 0, None, None),
    ]
    assert INT64_MIN < 0


def test_columns_take_no_more_than_they_have_room_for() -> None:
    data = b"".join(
        build_batch([Record(value=bytes(100)) for _ in range(5)], base_offset=first, codec=1) for first in (0, 5, 10)
    )
    reader = SliceReader(data, 0, len(data), 0, full=600)
    counts = []
    while not reader.is_done:
        columns = RecordColumns()
        counts.append(reader.read_into(columns))
        assert columns.size >= 100 * counts[-1]
    assert counts[:2] == [10, 5]
    assert reader.position == 15
