from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from braidlog.core.errors import CorruptLogError
from braidlog.storage.cleaner.cleaner import clean
from braidlog.storage.cleaner.cleaning_request import CleanerConfig, LastRecord, LogCleaningAborted
from braidlog.storage.cleaner.offset_map import SLOT_BYTES
from braidlog.storage.files import OsFiles
from braidlog.storage.index.transaction_index import ENTRY_SIZE, AbortedTxn
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record
from support.cleaner_fixture import DAY, NOW, SegmentDirectory


def record(key: str | None, value: str | None, timestamp: int = NOW - 1000) -> Record:
    return Record(
        timestamp=timestamp,
        key=None if key is None else key.encode(),
        value=None if value is None else value.encode(),
    )


def batch(base_offset: int, *pairs: tuple[str | None, str | None], **fields: int | bool) -> bytes:
    return build_batch([record(*pair) for pair in pairs], base_offset=base_offset, **fields)  # type: ignore[arg-type]


@pytest.fixture
def directory(tmp_path: Path) -> SegmentDirectory:
    return SegmentDirectory(tmp_path / "t-0")


def offsets_and_values(directory: SegmentDirectory) -> list[tuple[int, bytes | None]]:
    return [(found.offset, found.value) for found in directory.records()]


def test_the_newest_record_of_each_key_stays_at_its_offset(directory: SegmentDirectory) -> None:
    directory.write([batch(0, ("a", "1"), ("b", "2"), ("a", "3"))])
    directory.write([batch(3, ("c", "4"), ("b", "5"))])
    result = directory.compact(directory.request(5))
    assert offsets_and_values(directory) == [(2, b"3"), (3, b"4"), (4, b"5")]
    assert result.end_offset == 5
    assert (result.records_before, result.records_after, result.keys) == (5, 3, 3)


def test_neighbours_become_one_segment(directory: SegmentDirectory) -> None:
    for base in range(0, 40, 10):
        directory.write([batch(base, (f"k{base}", "v"))])
    result = directory.compact(directory.request(40))
    assert directory.bases() == [0]
    assert [group.replaces for group in result.groups] == [(0, 10, 20, 30)]


def test_a_segment_that_would_not_change_is_left_alone(directory: SegmentDirectory) -> None:
    directory.write([batch(0, ("a", "1"), ("b", "2"))])
    result = directory.compact(directory.request(2))
    assert result.groups == ()
    assert result.end_offset == 2


def test_offsets_past_the_bound_are_not_touched(directory: SegmentDirectory) -> None:
    directory.write([batch(0, ("a", "1"), ("a", "2"))])
    directory.write([batch(2, ("a", "3"))])
    request = directory.request(2)
    result = directory.compact(
        type(request)(
            **{field: getattr(request, field) for field in request.__slots__} | {"segments": request.segments[:1]}
        )
    )
    assert result.end_offset == 2
    assert offsets_and_values(directory) == [(1, b"2"), (2, b"3")]


def test_a_tombstone_stays_until_its_horizon_and_then_goes(directory: SegmentDirectory) -> None:
    directory.write([batch(0, ("a", "1"), ("a", None), ("b", "2"))])
    directory.compact(directory.request(3))
    assert offsets_and_values(directory) == [(1, None), (2, b"2")]
    header = directory.batches()[0][0]
    assert header.delete_horizon_ms == NOW + DAY
    # A second pass does not move the horizon.
    directory.compact(directory.request(3, now_ms=NOW + DAY - 1))
    assert offsets_and_values(directory) == [(1, None), (2, b"2")]
    assert directory.batches()[0][0].delete_horizon_ms == NOW + DAY
    directory.compact(directory.request(3, now_ms=NOW + DAY))
    assert offsets_and_values(directory) == [(2, b"2")]
    assert [found.timestamp for found in directory.records()] == [NOW - 1000]


def test_records_without_a_key_cannot_stay(directory: SegmentDirectory) -> None:
    directory.write([batch(0, (None, "x"), ("a", "1"))])
    result = directory.compact(directory.request(2))
    assert offsets_and_values(directory) == [(1, b"1")]
    assert result.records_without_key == 1


def test_aborted_data_goes_and_its_marker_follows_after_the_horizon(directory: SegmentDirectory) -> None:
    aborted = AbortedTxn(7, 0, 1, 2)
    directory.write(
        [
            batch(0, ("a", "bad"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
            build_end_txn_marker(commit=False, producer_id=7, producer_epoch=0, timestamp=NOW, base_offset=1),
            batch(2, ("a", "good")),
        ],
        [aborted],
    )
    directory.compact(directory.request(3))
    assert offsets_and_values(directory) == [(2, b"good")]
    assert [header.base_offset for header, _ in directory.batches() if header.is_control] == [1]
    # The transaction's data was there in this pass, so its entry stays once more.
    assert directory.file(0, ".txnindex").stat().st_size == ENTRY_SIZE
    directory.compact(directory.request(3))
    control = [header for header, _ in directory.batches() if header.is_control]
    assert control[0].delete_horizon_ms == NOW + DAY
    assert not directory.file(0, ".txnindex").exists()
    directory.compact(directory.request(3, now_ms=NOW + DAY))
    assert [header for header, _ in directory.batches() if header.is_control] == []


def test_an_aborted_record_does_not_push_out_a_committed_one(directory: SegmentDirectory) -> None:
    directory.write(
        [
            batch(0, ("a", "good")),
            batch(1, ("a", "bad"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
            build_end_txn_marker(commit=False, producer_id=7, producer_epoch=0, timestamp=NOW, base_offset=2),
        ],
        [AbortedTxn(7, 1, 2, 3)],
    )
    directory.compact(directory.request(3))
    assert offsets_and_values(directory) == [(0, b"good")]


def test_a_commit_marker_stays_as_long_as_data_of_its_transaction(directory: SegmentDirectory) -> None:
    directory.write(
        [
            batch(0, ("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True),
            build_end_txn_marker(commit=True, producer_id=7, producer_epoch=0, timestamp=NOW, base_offset=1),
        ]
    )
    directory.compact(directory.request(2))
    directory.compact(directory.request(2, now_ms=NOW + 10 * DAY))
    assert [header.base_offset for header, _ in directory.batches()] == [0, 1]
    assert not directory.batches()[1][0].has_delete_horizon
    directory.write([batch(2, ("a", "2"))])
    directory.compact(directory.request(3, now_ms=NOW + 10 * DAY))
    assert offsets_and_values(directory) == [(2, b"2")]
    directory.compact(directory.request(3, now_ms=NOW + 11 * DAY))
    directory.compact(directory.request(3, now_ms=NOW + 12 * DAY))
    assert [header.base_offset for header, _ in directory.batches()] == [2]


def test_the_newest_batch_of_a_live_producer_stays_as_an_empty_one(directory: SegmentDirectory) -> None:
    directory.write(
        [
            batch(0, ("a", "1"), ("b", "1"), producer_id=7, producer_epoch=3, base_sequence=40),
            batch(2, ("a", "2"), ("b", "2")),
        ]
    )
    directory.compact(directory.request(4, producers=(LastRecord(7, 1, 3),)))
    header, records = directory.batches()[0]
    assert records == []
    assert (header.base_offset, header.last_offset) == (0, 1)
    assert (header.producer_id, header.producer_epoch, header.last_sequence) == (7, 3, 41)
    directory.compact(directory.request(4))
    assert [header.base_offset for header, _ in directory.batches()] == [2]


def test_the_last_batch_of_a_pass_keeps_its_offsets_even_when_empty(directory: SegmentDirectory) -> None:
    directory.write([batch(0, ("a", "1")), batch(1, (None, "x"))])
    directory.compact(directory.request(2))
    assert [(header.base_offset, header.count) for header, _ in directory.batches()] == [(0, 1), (1, 0)]


def test_a_map_without_room_ends_the_pass_early_and_the_next_goes_on(directory: SegmentDirectory) -> None:
    directory.write([batch(0, *[(f"k{number}", "old") for number in range(10)])])
    directory.write([batch(10, *[(f"k{number}", "new") for number in range(10)])])
    memory = CleanerConfig(dedupe_bytes=11 * SLOT_BYTES, load_factor=0.6)
    ends = []
    while directory.first_dirty < 20:
        result = directory.compact(directory.request(20, memory=memory))
        ends.append(result.end_offset)
    assert ends == [6, 12, 18, 20]
    assert directory.state() == {f"k{number}".encode(): b"new" for number in range(10)}
    # What was passed over before it became known as old waits for a later pass over the whole log.
    assert len(directory.records()) <= 20


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_compacted_and_their_tombstones_go_by_the_segments_age(
    directory: SegmentDirectory, magic: int
) -> None:
    messages = [record("a", "1"), record("a", None), record("b", "2"), record("b", "3")]
    directory.write([build_message_set(messages, magic=magic)])
    OsFiles().set_modified_ms(str(directory.file(0, ".log")), NOW - 10 * DAY)
    directory.compact(directory.request(4))
    assert offsets_and_values(directory) == [(1, None), (3, b"3")]
    directory.write([build_message_set([record("c", "1")], magic=magic, base_offset=4)])
    OsFiles().set_modified_ms(str(directory.file(4, ".log")), NOW)
    request = directory.request(5, max_segment_bytes=1)
    directory.compact(request)
    directory.first_dirty = 5
    directory.compact(directory.request(5))
    assert offsets_and_values(directory) == [(3, b"3"), (4, b"1")]


def test_compressed_batches_stay_compressed(directory: SegmentDirectory) -> None:
    directory.write([batch(0, *[("a", "x" * 100) for _ in range(20)], codec=4)])
    directory.compact(directory.request(20))
    header, records = directory.batches()[0]
    assert header.codec == 4
    assert [found.offset for found in records] == [19]


def test_a_batch_larger_than_the_buffer_is_read_whole(directory: SegmentDirectory) -> None:
    directory.write([batch(0, ("a", "x" * 5000), ("a", "y" * 5000)), batch(2, ("b", "z"))])
    directory.compact(directory.request(3, memory=CleanerConfig(io_buffer_bytes=100)))
    assert [found.offset for found in directory.records()] == [1, 2]


def test_a_flipped_bit_makes_the_log_uncleanable_and_leaves_it_as_it_was(directory: SegmentDirectory) -> None:
    directory.write([batch(0, ("a", "1"), ("a", "2"))])
    path = directory.file(0, ".log")
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(bytes(data))
    with pytest.raises(CorruptLogError, match="offset 0"):
        directory.compact(directory.request(2))
    assert path.read_bytes() == bytes(data)
    assert not list(directory.path.glob("*.cleaned"))


def test_a_stopped_pass_leaves_nothing_behind(directory: SegmentDirectory) -> None:
    directory.write([batch(0, ("a", "1"), ("a", "2"))])
    answers = iter([False, True])
    with pytest.raises(LogCleaningAborted):
        clean(directory.request(2), OsFiles(), is_stopped=lambda: next(answers))
    assert not list(directory.path.glob("*.cleaned"))


def test_the_throttle_hears_of_everything_read_and_written(directory: SegmentDirectory) -> None:
    directory.write([batch(0, ("a", "1"), ("a", "2"))])
    moved: list[int] = []
    result = clean(directory.request(2), OsFiles(), throttle=moved.append)
    assert sum(moved) == 2 * result.bytes_before + result.bytes_after


def test_the_indexes_of_a_compacted_segment_lead_to_its_batches(directory: SegmentDirectory) -> None:
    directory.write([batch(base, (f"k{base}", "v" * 30), ("same", "w")) for base in range(0, 40, 2)])
    directory.compact(directory.request(40))
    data = directory.file(0, ".index").read_bytes()
    positions = {header.position: header.last_offset for header, _ in directory.batches()}
    entries = [
        (int.from_bytes(data[i : i + 4], "big"), int.from_bytes(data[i + 4 : i + 8], "big"))
        for i in range(0, len(data), 8)
    ]
    assert len(entries) >= 5
    for offset, position in entries:
        assert positions[position] == offset
    times = directory.file(0, ".timeindex").read_bytes()
    assert len(times) == 12
    assert int.from_bytes(times[:8], "big") == NOW - 1000


writes = st.lists(
    st.tuples(st.sampled_from("abcde"), st.none() | st.text("xyz", min_size=1, max_size=3)), min_size=1, max_size=6
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    segments=st.lists(st.lists(writes, min_size=1, max_size=3), min_size=1, max_size=5),
    passes=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([2, 4, 1000])), min_size=1, max_size=4),
    codec=st.sampled_from([0, 1, 2, 3, 4]),
)
def test_compaction_keeps_the_last_value_map(
    tmp_path_factory: pytest.TempPathFactory,
    segments: list[list[list[tuple[str, str | None]]]],
    passes: list[tuple[int, int]],
    codec: int,
) -> None:
    """Whatever the passes: the last-value map stays, offsets ascend, and tombstones outlive their horizon only."""
    directory = SegmentDirectory(tmp_path_factory.mktemp("model") / "t-0")
    offset = 0
    written: dict[int, tuple[bytes, bytes | None]] = {}
    for segment in segments:
        batches = []
        for pairs in segment:
            batches.append(batch(offset, *pairs, codec=codec))
            for key, value in pairs:
                written[offset] = (key.encode(), None if value is None else value.encode())
                offset += 1
        directory.write(batches)
    model = directory.state()
    newest = {key: at for at, (key, _) in written.items()}
    now = NOW
    first_horizon = NOW + passes[0][0] * DAY + DAY
    for days, keys in passes:
        now += days * DAY
        memory = CleanerConfig(dedupe_bytes=(keys + 1) * SLOT_BYTES, load_factor=1.0)
        starts_at_zero = directory.first_dirty == 0
        result = directory.compact(directory.request(offset, now_ms=now, memory=memory))
        assert directory.state() == model
        found = directory.records()
        assert [record.offset for record in found] == sorted({record.offset for record in found})
        for kept in found:
            assert written[kept.offset] == (kept.key, kept.value)
        if starts_at_zero and not result.map_was_full:
            assert {record.offset for record in found} <= set(newest.values())
        for key, at in newest.items():
            if written[at][1] is None and now < first_horizon:
                assert any(record.offset == at for record in found), f"the tombstone of {key!r} went too early"
    for days in (0, 1):
        # The first of these passes has given every tombstone its horizon, the second is past all of them.
        now += days * DAY
        directory.first_dirty = 0
        directory.compact(directory.request(offset, now_ms=now))
    assert all(record.value is not None for record in directory.records())
