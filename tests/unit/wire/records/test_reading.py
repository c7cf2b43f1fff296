"""Built, then read again: every format and codec, by us and by kafka-python."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecordsBuilder

from braidlog.core.protocol_errors import (
    CorruptMessageError,
    InvalidRecordError,
)
from braidlog.wire.records.batch import iterate_headers, read_header
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.reading import Record, find_timestamp, read_batch, read_records
from support.record_cases import NAMED_ERRORS, NOW, mutations, quick, record_lists, thorough

V2_CODECS = [0, 1, 2, 3, 4]
OLD_CODECS = [0, 1, 2, 3]
PYTHON_CODECS = [0, 1]


def content(records: list[Record]) -> list[tuple[object, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]


@pytest.mark.parametrize("codec", V2_CODECS)
@quick
@given(records=record_lists(), base_offset=st.integers(0, 2**62), padding=st.binary(max_size=9))
def test_batches_round_trip(codec: int, records: list[Record], base_offset: int, padding: bytes) -> None:
    batch = build_batch(records, base_offset=base_offset, codec=codec, leader_epoch=3)
    buffer = padding + batch + batch[: len(padding)]
    expected = [(base_offset + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(records)]
    assert content(read_records(buffer, len(padding))) == expected
    (header,) = iterate_headers(buffer, len(padding), len(buffer))
    again = read_batch(buffer, header)
    assert content(again) == expected
    assert header.max_timestamp == max(r.timestamp for r in records)
    assert (header.count, header.last_offset, header.leader_epoch) == (len(records), base_offset + len(records) - 1, 3)


@pytest.mark.parametrize("codec", OLD_CODECS)
@pytest.mark.parametrize("magic", [0, 1])
@quick
@given(records=record_lists(with_headers=False), base_offset=st.integers(0, 2**62))
def test_message_sets_round_trip(magic: int, codec: int, records: list[Record], base_offset: int) -> None:
    data = build_message_set(records, magic=magic, codec=codec, base_offset=base_offset)
    expected = [(base_offset + i, r.timestamp if magic == 1 else -1, r.key, r.value, ()) for i, r in enumerate(records)]
    assert content(read_records(data)) == expected


@pytest.mark.parametrize("codec", PYTHON_CODECS)
@pytest.mark.parametrize("magic", [0, 1, 2])
@quick
@given(records=record_lists(max_size=4))
def test_we_read_kafka_pythons_batches(magic: int, codec: int, records: list[Record]) -> None:
    builder = MemoryRecordsBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
    for record in records:
        headers = list(record.headers) if magic == 2 else []
        assert builder.append(record.timestamp, record.key, record.value, headers) is not None
    builder.close()
    read = read_records(bytes(builder.buffer()))
    assert [(r.key, r.value) for r in read] == [(r.key, r.value) for r in records]
    if magic:
        assert [r.timestamp for r in read] == [r.timestamp for r in records]


def test_messages_inside_messages() -> None:
    inner = build_message_set([Record(value=b"x")], magic=1, codec=1)
    from librt.strings import BytesWriter

    from braidlog.wire.records.compression import compress
    from braidlog.wire.records.encoding import write_message

    def wrap(content: bytes | None, magic: int = 1) -> bytes:
        out = BytesWriter()
        write_message(out, 0, magic, 1, NOW, None, None if content is None else compress(1, content))
        return out.getvalue()

    with pytest.raises(InvalidRecordError, match="compressed message inside"):
        read_records(wrap(inner))
    with pytest.raises(InvalidRecordError, match="format 0 inside"):
        read_records(wrap(build_message_set([Record(value=b"x")], magic=0)))
    with pytest.raises(InvalidRecordError, match="without inner"):
        read_records(wrap(b""))
    with pytest.raises(InvalidRecordError, match="no value"):
        read_records(wrap(None))
    plain = bytearray(build_message_set([Record(value=b"x")], magic=1))
    plain[-1] ^= 1
    with pytest.raises(CorruptMessageError, match="crc"):
        read_records(wrap(bytes(plain)))
    with pytest.raises(CorruptMessageError):
        read_records(wrap(bytes(plain[:-1])))


@thorough
@given(data=st.data(), codec=st.sampled_from(V2_CODECS), magic=st.integers(0, 2))
def test_mutated_bytes_raise_only_named_errors(data: st.DataObject, codec: int, magic: int) -> None:
    records = data.draw(record_lists(max_size=3))
    if magic == 2:
        buffer = build_batch(records, codec=codec)
    else:
        buffer = build_message_set(records, magic=magic, codec=min(codec, 3))
    mutated = data.draw(mutations(buffer))
    for check_crc in (True, False):
        with suppress(*NAMED_ERRORS):
            read_records(mutated, check_crc=check_crc, limit=1 << 20)


@pytest.mark.parametrize("codec", V2_CODECS)
@pytest.mark.parametrize("append_time", [False, True])
@quick
@given(data=st.data())
def test_the_first_record_of_a_time_is_the_one_that_reading_all_finds(
    codec: int, append_time: bool, data: st.DataObject
) -> None:
    stamp = NOW if append_time else None
    buffer = build_batch(data.draw(record_lists()), codec=codec, base_offset=100, log_append_time_ms=stamp)
    header = read_header(buffer, 0, len(buffer))
    records = read_batch(buffer, header)
    times = st.sampled_from([record.timestamp for record in records])
    timestamp = data.draw(times) + data.draw(st.integers(-1, 1))
    start_offset = 100 + data.draw(st.integers(0, len(records)))
    expected = next(
        ((r.timestamp, r.offset) for r in records if r.timestamp >= timestamp and r.offset >= start_offset), None
    )
    assert find_timestamp(buffer, header, timestamp, start_offset) == expected


@pytest.mark.parametrize("codec", OLD_CODECS[1:])
def test_the_first_old_message_of_a_time(codec: int) -> None:
    records = [Record(offset=number, timestamp=NOW + number, value=b"v") for number in range(5)]
    buffer = build_message_set(records, codec=codec, magic=1)
    header = read_header(buffer, 0, len(buffer))
    found = [find_timestamp(buffer, header, NOW + number, 1) for number in (0, 3, 5)]
    assert found == [(NOW + 1, 1), (NOW + 3, 3), None]


def test_no_time_is_found_in_a_damaged_batch() -> None:
    damaged = bytearray(build_batch([Record(timestamp=NOW, value=b"value")]))
    damaged[-2] ^= 1
    buffer = bytes(damaged)
    with pytest.raises(CorruptMessageError):
        find_timestamp(buffer, read_header(buffer, 0, len(buffer)), NOW, 0)
