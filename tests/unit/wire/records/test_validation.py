"""Rules of an append that the golden cases do not show, and what hostile bytes may do: nothing but be refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.core.protocol_errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from braidlog.core.slices import ByteSlice
from braidlog.wire.records.batch import (
    CODEC_GZIP,
    CODEC_LZ4,
    CODEC_NONE,
    CODEC_SNAPPY,
    CODEC_ZSTD,
    HEADER_SIZE,
    iterate_headers,
)
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record, read_records
from braidlog.wire.records.validation import (
    ORIGIN_COORDINATOR,
    ORIGIN_REPLICATION,
    AppendPolicy,
    assign_offsets,
    validate_for_append,
    work_to_validate,
)
from support.appended_records import ANY_TIME, append
from support.record_cases import NAMED_ERRORS, NOW, mutations, quick, record_lists, resigned, thorough

RECORDS = [Record(timestamp=NOW + i, key=b"k", value=b"v" * 100) for i in range(4)]


def test_the_plain_path_shares_the_body() -> None:
    batch = build_batch(RECORDS)
    frame = b"request head" + batch
    validated = validate_for_append(
        ByteSlice(frame, 12, len(frame)), first_offset=50, leader_epoch=6, now_ms=NOW, policy=AppendPolicy()
    )
    prefix, body = validated.parts
    assert len(prefix) == 16
    assert isinstance(body, memoryview)
    assert body.obj is frame
    assert read_records(b"".join(validated.parts))[0].offset == 50
    assert (validated.count, validated.max_timestamp, validated.offset_of_max_timestamp) == (4, NOW + 3, 53)
    assert (validated.size, validated.converted) == (len(batch), False)
    header = validated.headers[0]
    assert (header.position, header.base_offset, header.leader_epoch) == (0, 50, 6)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@quick
@given(records=record_lists())
def test_what_is_appended_reads_back(codec: int, records: list[Record]) -> None:
    validated = append(build_batch(records, codec=codec, producer_id=3, producer_epoch=0, base_sequence=9))
    read = read_records(b"".join(validated.parts))
    assert [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in read] == [
        (50 + i, r.timestamp, r.key, r.value, r.headers) for i, r in enumerate(records)
    ]
    latest = max(r.timestamp for r in records)
    assert validated.max_timestamp == latest
    if latest != -1:
        first_latest = [r.timestamp for r in records].index(latest)
        assert validated.offset_of_max_timestamp == 50 + first_latest


@pytest.mark.parametrize("target", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("source", [0, 3])
def test_recompression(source: int, target: int) -> None:
    validated = append(build_batch(RECORDS, codec=source), AppendPolicy(codec=target))
    written = b"".join(validated.parts)
    assert [r.value for r in read_records(written)] == [r.value for r in RECORDS]
    assert validated.headers[0].codec == target
    assert validated.source_codec == source
    assert validated.converted == (source != target)


def test_a_bomb_is_refused() -> None:
    bomb = build_batch([Record(timestamp=NOW, value=bytes(5_000_000))], codec=4)
    with pytest.raises(CorruptMessageError, match="1000000 bytes allowed"):
        append(bomb, AppendPolicy(max_decompressed_bytes=1_000_000))


def test_old_sets_must_be_of_one_kind() -> None:
    old, older = (build_message_set(RECORDS, magic=magic) for magic in (1, 0))
    with pytest.raises(InvalidRecordError, match="formats 1 and 0"):
        append(old + older, version=2)
    packed = build_message_set(RECORDS, magic=1, codec=1)
    with pytest.raises(InvalidRecordError, match="only one in its set"):
        append(packed + old, version=2)
    assert append(packed, version=2).count == 4


def test_old_inner_offsets_do_not_matter() -> None:
    zeros = build_message_set([Record(timestamp=NOW) for _ in range(4)], magic=1, codec=1, keep_offsets=True)
    validated = append(zeros, version=2)
    assert [r.offset for r in read_records(b"".join(validated.parts))] == [50, 51, 52, 53]


def test_coordinators_may_write_several_batches_and_markers() -> None:
    marker = build_end_txn_marker(commit=True, producer_id=4, producer_epoch=1, timestamp=NOW)
    data = build_batch(RECORDS) + marker + build_batch(RECORDS, codec=1)
    validated = append(data, AppendPolicy(codec=3), origin=ORIGIN_COORDINATOR)
    written = b"".join(validated.parts)
    assert [h.base_offset for h in iterate_headers(written, 0, len(written))] == [50, 54, 55]
    assert [h.codec for h in validated.headers] == [3, 0, 3]
    assert [h.position for h in validated.headers] == [h.position for h in iterate_headers(written, 0, validated.size)]
    assert (validated.first_offset, validated.last_offset, validated.count) == (50, 58, 9)
    with pytest.raises(InvalidRecordError, match="control"):
        append(marker)


def test_followers_keep_what_their_leader_assigned() -> None:
    first = build_batch(RECORDS, base_offset=50, leader_epoch=2)
    gap = build_batch(RECORDS[:1], base_offset=60, leader_epoch=3, codec=4)
    validated = append(first + gap, origin=ORIGIN_REPLICATION)
    assert b"".join(validated.parts) == first + gap
    assert (validated.first_offset, validated.last_offset, validated.max_timestamp) == (50, 60, NOW + 3)
    assert [h.leader_epoch for h in validated.headers] == [2, 3]
    with pytest.raises(CorruptMessageError, match="goes on at 61"):
        append(first, origin=ORIGIN_REPLICATION, first_offset=61)
    with pytest.raises(CorruptMessageError, match="crc"):
        append(first[:-1] + b"!", origin=ORIGIN_REPLICATION)


def test_structure_is_checked_record_by_record() -> None:
    batch = bytearray(build_batch([Record(timestamp=NOW, value=b"v")]))
    body = bytes(batch[61:])
    # length 14 | attributes | timestamp delta | offset delta | key -1 | value length 2, "v" | no headers
    assert body == bytes([14, 0, 0, 0, 1, 2, ord("v"), 0])
    broken = {
        "the batch declares 1 records but ends after 0": body[:-2],
        "record 0 declares 7 bytes where 6 are left": body[:-1],
        "declares 8 bytes where 7": bytes([16]) + body[1:],
        "declares 3 bytes": bytes([6]) + body[1:],
        "offset delta 1": body[:3] + b"\x02" + body[4:],
        "offset delta -1": body[:3] + b"\x01" + body[4:],
        "key of record 0": body[:4] + b"\x14" + body[5:],
        "value of record 0": body[:5] + b"\x14" + body[6:],
        "2 headers": body[:7] + b"\x04",
        "-1 headers": body[:7] + b"\x01",
        "8 bytes are left": body + body,
        "ends inside a number": bytes([14, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80]),
        "more than 5 bytes": bytes([16, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0]),
        "more than 10 bytes": bytes([30, 0, *([0x80] * 10), 0, 1, 1, 0]),
        "impossible timestamp": bytes([30, 0, *([0xFE] + [0xFF] * 8 + [1]), 0, 1, 1, 0]),
        "header key of -1": bytes([16, 0, 0, 0, 1, 1, 2, 1, 0]),
        "field of 5 bytes": bytes([18, 0, 0, 0, 1, 1, 2, 0, 10, 0])[:10],
        "bytes more than it has": bytes([16, 0, 0, 0, 1, 2, ord("v"), 0, 0]),
    }
    for message, mutated in broken.items():
        with pytest.raises(InvalidRecordError, match=message):
            append(resigned(bytes(batch[:61]) + mutated))
    assert append(resigned(bytes(batch[:61]) + bytes([16, 7, 0, 0, 1, 1, 2, 0, 1])))


@thorough
@given(data=st.data(), codec=st.integers(0, 4), version=st.sampled_from([2, 11]), magic=st.integers(0, 2))
def test_mutated_appends_raise_only_named_errors(data: st.DataObject, codec: int, version: int, magic: int) -> None:
    records = data.draw(record_lists(max_size=3))
    if magic == 2:
        good = build_batch(records, codec=codec)
    else:
        good = build_message_set(records, magic=magic, codec=min(codec, 3))
    # With its checksum put right again, so that the checks behind it are reached.
    mutated = resigned(data.draw(mutations(good)))
    for policy in (ANY_TIME, AppendPolicy(compacted=True, codec=3, max_decompressed_bytes=1 << 20)):
        for origin in (0, ORIGIN_COORDINATOR, ORIGIN_REPLICATION):
            try:
                validated = append(mutated, policy, origin=origin, version=version)
            except NAMED_ERRORS:
                continue
            if origin != ORIGIN_REPLICATION:
                stored = read_records(b"".join(validated.parts))
                assert [r.offset for r in stored] == list(range(50, validated.last_offset + 1))


@pytest.mark.parametrize("codec", [CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD])
@given(records=record_lists())
@quick
def test_what_unpacking_takes_is_never_underestimated(codec: int, records: list[Record]) -> None:
    plain = build_batch(records)
    packed = build_batch(records, codec=codec)
    work = work_to_validate(ByteSlice(packed, 0, len(packed)), AppendPolicy(), 1 << 30)
    assert work >= len(plain) - HEADER_SIZE


@given(records=record_lists())
@quick
def test_a_batch_that_is_placed_afterwards_is_the_same(records: list[Record]) -> None:
    for codec in (CODEC_NONE, CODEC_LZ4):
        for policy in (ANY_TIME, AppendPolicy(timestamp_after_max_ms=2**63 - 1, codec=CODEC_GZIP)):
            data = build_batch(records, codec=codec)
            at_once = append(data, policy)
            placed = append(data, policy, first_offset=0)
            assign_offsets(placed, 50, 6)
            assert b"".join(placed.parts) == b"".join(at_once.parts)
            for name in ("first_offset", "last_offset", "max_timestamp", "offset_of_max_timestamp", "count", "size"):
                assert getattr(placed, name) == getattr(at_once, name), name
            assert [header.base_offset for header in placed.headers] == [50]


def test_an_old_set_that_can_become_no_batch_is_refused_before_it_is_taken_apart() -> None:
    message = build_message_set([Record(timestamp=NOW, key=None, value=b"")], magic=0)
    data = message * 2000
    with pytest.raises(MessageTooLargeError):
        append(data, AppendPolicy(max_message_bytes=len(data) // 5), version=2)


def test_several_batches_where_one_may_be_are_left_to_a_thread() -> None:
    data = build_batch(RECORDS) * 2
    assert work_to_validate(ByteSlice(data, 0, len(data)), AppendPolicy(), 12345) == 12345


@pytest.mark.parametrize("target", [0, 1])
@pytest.mark.parametrize("source", [0, 1, 2])
@pytest.mark.parametrize("codec", [CODEC_NONE, CODEC_GZIP])
@quick
@given(records=record_lists())
def test_a_topic_of_an_old_format_stores_messages(target: int, source: int, codec: int, records: list[Record]) -> None:
    plain = [Record(timestamp=record.timestamp, key=record.key, value=record.value) for record in records]
    data = build_batch(plain, codec=codec) if source == 2 else build_message_set(plain, magic=source, codec=codec)
    policy = AppendPolicy(timestamp_after_max_ms=2**63 - 1, magic=target)
    validated = append(data, policy, version=9 if source == 2 else 2)
    stored = b"".join(validated.parts)
    timed = min(source, target) > 0
    assert [(each.offset, each.timestamp, each.key, each.value) for each in read_records(stored)] == [
        (50 + index, each.timestamp if timed else -1, each.key, each.value) for index, each in enumerate(plain)
    ]
    assert {(header.magic, header.codec) for header in validated.headers} == {(target, codec)}
    assert (validated.first_offset, validated.last_offset, validated.count) == (50, 49 + len(plain), len(plain))
    assert [(header.position, header.size) for header in validated.headers] == [
        (header.position, header.size) for header in iterate_headers(stored, 0, len(stored))
    ]
    latest = max((record.timestamp for record in plain), default=-1) if timed else -1
    assert validated.max_timestamp == latest
    if latest >= 0:
        assert plain[validated.offset_of_max_timestamp - 50].timestamp == latest
    assert validated.converted == (source != target or (target == 0 and codec != CODEC_NONE))


@given(records=record_lists())
@quick
def test_messages_that_are_placed_afterwards_are_the_same(records: list[Record]) -> None:
    plain = [Record(timestamp=record.timestamp, key=record.key, value=record.value) for record in records]
    policy = AppendPolicy(timestamp_after_max_ms=2**63 - 1, magic=1)
    for codec in (CODEC_NONE, CODEC_LZ4):
        data = build_batch(plain, codec=codec)
        at_once = append(data, policy)
        placed = append(data, policy, first_offset=0)
        assign_offsets(placed, 50, 6)
        assert b"".join(placed.parts) == b"".join(at_once.parts)
        for name in ("first_offset", "last_offset", "max_timestamp", "offset_of_max_timestamp", "count", "size"):
            assert getattr(placed, name) == getattr(at_once, name), name
        assert [header.base_offset for header in placed.headers] == [header.base_offset for header in at_once.headers]


OLD = AppendPolicy(magic=1)


def test_what_an_old_format_has_no_place_for_is_refused() -> None:
    for producer in ({}, {"transactional": True}):
        data = build_batch(RECORDS, producer_id=3, producer_epoch=0, base_sequence=0, **producer)  # type: ignore[arg-type]
        with pytest.raises(UnsupportedForMessageFormatError, match="transactional" if producer else "idempotent"):
            append(data, OLD)
    marker = build_end_txn_marker(commit=True, producer_id=1, producer_epoch=0, timestamp=NOW)
    with pytest.raises(UnsupportedForMessageFormatError):
        append(marker, OLD, origin=ORIGIN_COORDINATOR)
    with pytest.raises(UnsupportedForMessageFormatError, match="record 1 has headers"):
        append(build_batch([RECORDS[0], Record(timestamp=NOW, headers=(("a", b"b"),))]), OLD)
    with pytest.raises(UnsupportedCompressionTypeError):
        append(build_batch(RECORDS, codec=CODEC_ZSTD), OLD)
    with pytest.raises(UnsupportedCompressionTypeError):
        append(build_batch(RECORDS), AppendPolicy(magic=1, codec=CODEC_ZSTD))


def test_the_rules_of_records_are_those_of_every_format() -> None:
    keyless = build_batch([RECORDS[0], Record(timestamp=NOW)])
    with pytest.raises(InvalidRecordError):
        append(keyless, AppendPolicy(magic=1, compacted=True))
    with pytest.raises(InvalidTimestampError):
        append(build_batch([Record(timestamp=NOW + 10**9)]), OLD)
    with pytest.raises(MessageTooLargeError):
        append(build_batch(RECORDS), AppendPolicy(magic=1, max_message_bytes=100))


def test_each_message_is_measured_by_itself() -> None:
    size = build_message_set(RECORDS[:1], magic=1)
    data = build_message_set(RECORDS, magic=1)
    policy = AppendPolicy(magic=1, max_message_bytes=len(size))
    assert append(data, policy, version=2).size == len(data)


def test_coordinators_write_old_formats_too() -> None:
    data = build_batch(RECORDS[:1]) + build_batch(RECORDS[1:])
    validated = append(data, OLD, origin=ORIGIN_COORDINATOR)
    assert [header.magic for header in validated.headers] == [1] * 4
    assert validated.last_offset == 53


def test_the_brokers_time_in_old_formats() -> None:
    for codec in (CODEC_NONE, CODEC_GZIP):
        data = build_batch(RECORDS, codec=codec)
        stamped = append(data, AppendPolicy(magic=1, log_append_time=True))
        assert {record.timestamp for record in read_records(b"".join(stamped.parts))} == {NOW}
        assert (stamped.max_timestamp, stamped.offset_of_max_timestamp) == (NOW, 50)
        without = append(data, AppendPolicy(magic=0, log_append_time=True))
        assert {record.timestamp for record in read_records(b"".join(without.parts))} == {-1}
        assert (without.max_timestamp, without.offset_of_max_timestamp) == (-1, -1)


def test_a_follower_knows_where_a_wrapper_begins_by_its_own_log() -> None:
    wrapper = build_message_set(RECORDS, magic=1, codec=CODEC_GZIP, base_offset=7)
    validated = append(wrapper, origin=ORIGIN_REPLICATION, first_offset=7)
    assert (validated.first_offset, validated.last_offset) == (7, 10)


def test_conversion_to_an_old_format_is_work_for_a_thread() -> None:
    data = ByteSlice(packed := build_batch(RECORDS), 0, len(packed))
    assert work_to_validate(data, OLD, 1 << 30) > 8 * work_to_validate(data, AppendPolicy(), 1 << 30)
    # Of format 0 the offsets are needed before.
    assert work_to_validate(data, AppendPolicy(magic=0), 1 << 30) == 0


def test_more_records_than_may_become_objects_at_once_are_refused() -> None:
    packed = build_batch([Record(timestamp=NOW)] * 700_000, codec=CODEC_ZSTD)
    with pytest.raises(MessageTooLargeError, match="700000 records at once"):
        append(packed, OLD)
