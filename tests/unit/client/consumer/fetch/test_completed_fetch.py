"""Records out of fetched batches: the same that the slow reader finds, however they are asked for."""

from __future__ import annotations

import contextlib
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.client.consumer.fetch.completed_fetch import AbortedRange, CompletedFetch, end_of_batches
from braidlog.client.consumer.partition_state import PartitionState
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.errors import PoisonRecordError
from braidlog.core.types import TopicPartition
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record
from support.visible import visible_records

WHERE = TopicPartition("orders", 3)


def slice_of(data: bytes, position: int = 0, aborted: list[AbortedRange] | None = None) -> CompletedFetch:
    return CompletedFetch(PartitionState(WHERE), data, 0, len(data), position, aborted or [])


def read_all(found: CompletedFetch, step: int = 1000) -> list[ConsumerRecord]:
    records: list[ConsumerRecord] = []
    while not found.is_used_up:
        found.read(records, step)
    return records


def plain(records: list[ConsumerRecord]) -> list[tuple[object, ...]]:
    return [(each.offset, each.timestamp, each.key, each.value, each.headers) for each in records]


def of_record(record: Record) -> tuple[object, ...]:
    return (record.offset, record.timestamp, record.key, record.value, record.headers)


strings = st.none() | st.binary(max_size=300)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3).map(tuple)
items = st.builds(
    Record,
    timestamp=st.integers(0, 1 << 40),
    key=strings,
    value=strings,
    headers=headers,
)


@st.composite
def logs(draw: st.DrawFn) -> tuple[bytes, list[AbortedRange], int]:
    """A log of batches, transactions among them; with what was aborted, and its end."""
    data = bytearray()
    offset = draw(st.integers(0, 5))
    aborted: list[AbortedRange] = []
    open_at: dict[int, int] = {}
    for _ in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["plain", "plain", "transactional", "old", "end"]))
        records = draw(st.lists(items, min_size=1, max_size=6))
        if kind == "end":
            producer = draw(st.integers(1, 2))
            commit = draw(st.booleans())
            first = open_at.pop(producer, None)
            if first is not None and not commit:
                aborted.append(AbortedRange(producer, first))
            data += build_end_txn_marker(
                commit=commit, producer_id=producer, producer_epoch=0, timestamp=5, base_offset=offset
            )
            offset += 1
            continue
        if kind == "old":
            plainer = [Record(timestamp=each.timestamp, key=each.key, value=each.value) for each in records]
            data += build_message_set(
                plainer, magic=draw(st.sampled_from([0, 1])), base_offset=offset, codec=draw(st.sampled_from([0, 1, 2]))
            )
            offset += len(records)
            continue
        producer = draw(st.integers(1, 2)) if kind == "transactional" else -1
        if producer > 0:
            open_at.setdefault(producer, offset)
        gap = draw(st.integers(0, 2))
        for at, each in enumerate(records):
            each.offset = offset + at * (gap + 1)
        data += build_batch(
            records,
            codec=draw(st.integers(0, 4)),
            leader_epoch=4,
            producer_id=producer,
            producer_epoch=0 if producer > 0 else -1,
            transactional=producer > 0,
            log_append_time_ms=draw(st.none() | st.just(77)),
            keep_offsets=True,
        )
        offset = records[-1].offset + 1
    # Transactions that are still open lie past what a reader of committed records is given.
    return bytes(data), aborted, offset


@settings(max_examples=60)
@given(logs(), st.integers(1, 7), st.integers(0, 12), st.integers(0, 40))
def test_as_the_slow_reader_however_much_is_asked_for(
    log: tuple[bytes, list[AbortedRange], int], step: int, position: int, cut: int
) -> None:
    data, aborted, _ = log
    data = data[: len(data) - cut]
    expected = visible_records(data, position, aborted)
    found = slice_of(data, position, aborted)
    assert plain(read_all(found, step)) == [of_record(each) for each in expected.records]
    assert found.position == expected.next_offset
    assert end_of_batches(data, 0, len(data), position) == expected.next_offset


@settings(max_examples=30)
@given(logs(), st.integers(1, 7))
def test_read_again_from_any_record(log: tuple[bytes, list[AbortedRange], int], step: int) -> None:
    data, aborted, _ = log
    found = slice_of(data, 0, aborted)
    everything = read_all(found, step)
    for at in range(len(everything)):
        found.rewind(everything[at].offset)
        assert read_all(found, step) == everything[at:]


def three_batches() -> tuple[bytes, int]:
    """The second one's position is the other thing returned."""
    first = build_batch([Record(value=b"a"), Record(value=b"b")])
    second = build_batch([Record(value=b"c"), Record(value=b"d")], base_offset=2)
    third = build_batch([Record(value=b"e")], base_offset=4)
    return first + second + third, len(first)


def test_a_batch_that_fails_its_checksum_is_raised_after_what_is_whole() -> None:
    data, second = three_batches()
    broken = bytearray(data)
    broken[second + 65] ^= 1
    found = slice_of(bytes(broken))
    records: list[ConsumerRecord] = []
    found.read(records, 100)
    assert [each.value for each in records] == [b"a", b"b"]
    for _ in range(2):
        with pytest.raises(PoisonRecordError, match=r"orders-3 cannot be read at offset 2: .*crc.*offset 4") as caught:
            found.read(records, 100)
        assert (caught.value.partition, caught.value.offset, caught.value.resume_at) == (WHERE, 2, 4)
    assert found.position == 2


def test_checksums_may_be_left_alone() -> None:
    data = bytearray(build_batch([Record(value=b"a")]))
    data[17] ^= 1
    found = CompletedFetch(PartitionState(WHERE), bytes(data), 0, len(data), 0, [], check_crcs=False)
    assert [each.value for each in read_all(found)] == [b"a"]


@given(st.integers(61, 200), st.integers(0, 255))
def test_a_broken_record_never_hangs_or_passes_for_another_error(at: int, byte: int) -> None:
    data = bytearray(build_batch([Record(key=b"key", value=b"x" * 40, headers=(("h", b"v"),)) for _ in range(3)]))
    data[at % len(data)] = byte
    found = CompletedFetch(PartitionState(WHERE), bytes(data), 0, len(data), 0, [], check_crcs=False)
    records: list[ConsumerRecord] = []
    with contextlib.suppress(PoisonRecordError):
        while not found.is_used_up:
            found.read(records, 1)
    assert len(records) <= 3
    if found.problem is not None:
        assert found.problem.offset == found.position
        assert found.problem.resume_at > found.position


def test_an_unknown_format_is_raised() -> None:
    data = bytearray(build_batch([Record(value=b"a")]))
    data[16] = 9
    with pytest.raises(PoisonRecordError, match="magic 9"):
        slice_of(bytes(data)).read([], 1)
    assert end_of_batches(bytes(data), 0, len(data), 5) == 5


def test_a_length_that_cannot_be() -> None:
    data = struct.pack(">qi", 0, -40) + bytes(60)
    assert end_of_batches(data, 0, len(data), 3) == 3
    with pytest.raises(PoisonRecordError, match="smaller"):
        slice_of(data).read([], 1)


def test_compaction_leaves_gaps_that_the_position_passes() -> None:
    batch = build_batch([Record(offset=5, value=b"a"), Record(offset=9, value=b"b")], keep_offsets=True)
    # The batch keeps its last offset though the record there is gone.
    held = bytearray(build_batch([Record(offset=5, value=b"a")], keep_offsets=True))
    held[23:27] = struct.pack(">i", 4)
    found = CompletedFetch(PartitionState(WHERE), bytes(held), 0, len(held), 5, [], check_crcs=False)
    assert [each.offset for each in read_all(found)] == [5]
    assert found.position == 10
    assert next(iter(iterate_headers(batch, 0, len(batch)))).next_offset == 10
