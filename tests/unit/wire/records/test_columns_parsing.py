"""Batches to columns: the same records and the same errors as the way over objects gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.protocol_errors import CorruptMessageError
from braidlog.wire.records.batch import BatchHeader, iterate_headers, read_header
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.columns import RecordColumns
from braidlog.wire.records.columns_parsing import parse_batch
from braidlog.wire.records.reading import Record, read_batch, read_records
from support.column_cases import plain, records_of
from support.record_cases import NAMED_ERRORS, NOW, golden, mutations, quick, record_lists, resigned, thorough

CODECS = range(5)


def outcome_of_objects(data: bytes, header: BatchHeader) -> list[Record] | tuple[type, str]:
    try:
        return plain(read_batch(data, header))
    except NAMED_ERRORS as error:
        return type(error), str(error)


def outcome_of_columns(data: bytes, header: BatchHeader) -> list[Record] | tuple[type, str]:
    columns = RecordColumns()
    try:
        parse_batch(data, header, columns)
    except NAMED_ERRORS as error:
        return type(error), str(error)
    return records_of(columns)


@quick
@given(records=record_lists(), codec=st.sampled_from(CODECS), base=st.integers(0, 1 << 40), stamped=st.booleans())
def test_records_come_back(records: list[Record], codec: int, base: int, stamped: bool) -> None:
    data = build_batch(records, base_offset=base, codec=codec, log_append_time_ms=NOW if stamped else None)
    columns = RecordColumns()
    assert parse_batch(data, read_header(data, 0, len(data)), columns) == -1
    assert records_of(columns) == plain(read_records(data))
    assert columns.timestamp_type_runs == [(1 if stamped else 0, len(records))]


@thorough
@given(data=st.data(), records=record_lists(max_size=4), codec=st.sampled_from([0, 0, 0, 0, 1, 4]))
def test_broken_batches_fail_as_on_the_way_over_objects(data: st.DataObject, records: list[Record], codec: int) -> None:
    whole = build_batch(records, codec=codec)
    broken = resigned(whole[:21] + data.draw(mutations(whole[21:])))
    try:
        header = read_header(broken, 0, len(broken))
    except CorruptMessageError:
        return
    assert outcome_of_columns(broken, header) == outcome_of_objects(broken, header)


@pytest.mark.parametrize("case", golden("batch"), ids=lambda case: case[0])
def test_what_kafka_wrote(case: list[str]) -> None:
    data = bytes.fromhex(case[1])
    for header in iterate_headers(data, 0, len(data)):
        assert outcome_of_columns(data, header) == outcome_of_objects(data, header)
