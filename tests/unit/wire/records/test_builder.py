from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from braidlog.core.protocol_errors import (
    InvalidRecordError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.reading import Record, read_records
from support.record_cases import quick, record_lists

PYTHON_CODECS = [0, 1]


@quick
@given(records=record_lists(), stamp=st.integers(0, 2**40), sequence=st.integers(2**31 - 5, 2**31 - 1))
def test_append_time_and_sequences(records: list[Record], stamp: int, sequence: int) -> None:
    batch = build_batch(records, log_append_time_ms=stamp, producer_id=1, producer_epoch=0, base_sequence=sequence)
    read = read_records(batch)
    assert {record.timestamp for record in read} == {stamp}
    assert [record.sequence for record in read] == [(sequence + i) % 2**31 for i in range(len(records))]


@quick
@given(records=record_lists(), gaps=st.lists(st.integers(1, 1000), min_size=8, max_size=8))
def test_offsets_can_be_kept(records: list[Record], gaps: list[int]) -> None:
    offset = 500
    for record, gap in zip(records, gaps, strict=False):
        offset += gap
        record.offset = offset
    read = read_records(build_batch(records, base_offset=500, keep_offsets=True))
    assert [r.offset for r in read] == [r.offset for r in records]
    backwards = [Record(offset=5), Record(offset=5)]
    with pytest.raises(InvalidRecordError):
        build_batch(backwards, keep_offsets=True)


@pytest.mark.parametrize("codec", PYTHON_CODECS)
@quick
@given(records=record_lists())
def test_kafka_python_reads_our_batches(codec: int, records: list[Record]) -> None:
    batch = build_batch(records, base_offset=10, codec=codec)
    theirs = MemoryRecords(batch)
    (found,) = list(theirs)  # type: ignore[call-overload]
    assert found.validate_crc()
    assert [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in found] == [
        (10 + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(records)
    ]


def test_formats_that_do_not_exist() -> None:
    with pytest.raises(UnsupportedForMessageFormatError):
        build_message_set([Record()], magic=2)
    with pytest.raises(UnsupportedCompressionTypeError):
        build_message_set([Record()], magic=1, codec=4)
