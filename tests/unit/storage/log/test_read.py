from __future__ import annotations

import os
from pathlib import Path

import pytest

from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import CorruptMessageError, OffsetOutOfRangeError
from braidlog.storage.log.unified_log import FetchDataInfo, TimestampAndOffset, UnifiedLog
from braidlog.wire.records.reading import read_records
from support.log_kit import START_MS, FailingDisk, Kit, as_slice, batch, read_all


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path, segment_bytes=4000, index_interval_bytes=300)


def filled(kit: Kit, batches: int = 60) -> UnifiedLog:
    """Batches of two records of 50 bytes, a second apart; 30 or so to a segment."""
    log = kit.open()
    for number in range(batches):
        kit.values(log, b"%050d" % (2 * number), b"%050d" % (2 * number + 1))
        kit.clock.advance(1)
    return log


def offsets(read: FetchDataInfo) -> list[int]:
    return [] if read.slice is None else [record.offset for record in read_records(read.slice.read())]


def one_batch_size(log: UnifiedLog) -> int:
    return log.segments[0].batch_at(0).size


def test_every_offset_leads_to_its_batch(kit: Kit) -> None:
    log = filled(kit)
    assert len(log.segments) > 2
    for offset in range(log.log_end_offset):
        found = offsets(log.read(offset, one_batch_size(log), log.log_end_offset))
        assert found == [offset - offset % 2, offset - offset % 2 + 1]


@pytest.mark.parametrize("reopened", [False, True])
def test_reads_return_as_many_whole_batches_as_fit(kit: Kit, reopened: bool) -> None:
    log = filled(kit)
    if reopened:
        log.close()
        log = kit.open(clean=True)
    size = one_batch_size(log)
    for offset in range(0, log.log_end_offset, 7):
        for max_bytes in (size, size + 1, 3 * size - 1, 3 * size, 1000):
            read = log.read(offset, max_bytes, log.log_end_offset)
            assert read.slice is not None
            found = offsets(read)
            assert found[0] <= offset <= found[1]
            assert read.slice.size <= max_bytes
            assert read.next_offset == found[-1] + 1
            segment_end = next((s.base_offset for s in log.segments if s.base_offset > offset), log.log_end_offset)
            assert found[-1] + 1 == min(found[0] + 2 * (max_bytes // size), segment_end)


def test_a_first_batch_that_is_too_large_is_returned_only_if_asked(kit: Kit) -> None:
    log = filled(kit, 5)
    size = one_batch_size(log)
    read = log.read(3, 10, log.log_end_offset)
    assert (offsets(read), read.first_batch_size, read.next_offset) == ([2, 3], size, 4)
    refused = log.read(3, 10, log.log_end_offset, min_one_batch=False)
    assert (refused.slice, refused.first_batch_size, refused.next_offset) == (None, size, 3)
    assert offsets(log.read(3, 0, log.log_end_offset)) == [2, 3]


def test_no_batch_reaches_past_the_limit(kit: Kit) -> None:
    log = filled(kit)
    for limit in range(log.log_end_offset + 1):
        start = max(limit - 5, 0)
        found = offsets(log.read(start, 1 << 20, limit))
        assert all(offset < limit for offset in found)
        if start < limit - limit % 2:
            assert found[0] == start - start % 2
    assert log.read(5, 100, 5).slice is None
    assert log.read(5, 100, 3).slice is None


def test_the_limit_is_at_most_the_end(kit: Kit) -> None:
    log = filled(kit, 3)
    assert offsets(log.read(0, 1 << 20, 1 << 60)) == list(range(6))
    at_end = log.read(6, 100, 1 << 60)
    assert (at_end.slice, at_end.next_offset) == (None, 6)


def test_offsets_outside_of_the_log_are_refused(kit: Kit) -> None:
    log = filled(kit, 5)
    log.advance_high_watermark(10)
    log.increment_log_start_offset(3)
    for offset in (-1, 2, 11):
        with pytest.raises(OffsetOutOfRangeError, match="3 … 10"):
            log.read(offset, 100, log.log_end_offset)
    assert offsets(log.read(3, 10, log.log_end_offset)) == [2, 3]


def test_gaps_within_and_between_segments_are_skipped(tmp_path: Path) -> None:
    kit = Kit(tmp_path, segment_bytes=300, index_interval_bytes=1)
    log = kit.open()
    for offset in (0, 10, 20, 90, 95):
        log.append_as_follower(as_slice(batch(b"x" * 50, base_offset=offset)), now_ms=START_MS)
        log.write_staged()
    assert [segment.base_offset for segment in log.segments] == [0, 20, 95]
    for asked, found in [(0, 0), (1, 10), (10, 10), (11, 20), (21, 90), (91, 95), (95, 95)]:
        assert offsets(log.read(asked, 1, log.log_end_offset)) == [found]
    assert log.read(11, 1000, 15).slice is None


def test_readers_keep_their_slice_when_files_are_removed_or_evicted(kit: Kit) -> None:
    log = filled(kit)
    slices = [log.read(segment.base_offset, 1 << 20, log.log_end_offset).slice for segment in log.segments]
    expected = [piece.read() for piece in slices if piece is not None]
    log.advance_high_watermark(log.log_end_offset)
    for deleted in log.delete_segments(len(log.segments) - 1):
        deleted.remove()
    kit.handles.capacity = 1
    kit.handles.handle(f"{kit.directory}/other").get()
    assert [piece.read() for piece in slices if piece is not None] == expected


def test_an_unreadable_disk_is_a_storage_fault(tmp_path: Path) -> None:
    disk = FailingDisk()
    kit = Kit(tmp_path, disk, index_interval_bytes=1)
    log = kit.open()
    for _ in range(50):
        kit.values(log, b"a")
    disk.unreadable = True
    with pytest.raises(StorageFault, match="Input/output error"):
        log.read(33, 100, log.log_end_offset)


def test_few_reads_reach_any_offset_of_a_cold_segment(tmp_path: Path) -> None:
    """Binary search by pages, then one walk of an index interval."""
    calls = 0

    class Counting(FailingDisk):
        pass

    disk = Counting()
    kit = Kit(tmp_path, disk, index_interval_bytes=100)
    log = kit.open()
    for number in range(3000):
        kit.stage(log, batch(b"%020d" % number))
    log.write_staged()
    log.close()
    log = kit.open(clean=True)

    from support import log_kit

    genuine = log_kit.FailingFile.pread

    def counting(file: log_kit.FailingFile, size: int, position: int) -> bytes:
        nonlocal calls
        calls += 1
        return genuine(file, size, position)

    log_kit.FailingFile.pread = counting  # type: ignore[method-assign]
    try:
        for offset in (17, 1234, 2998):
            calls = 0
            assert offsets(log.read(offset, 1, log.log_end_offset)) == [offset]
            assert calls <= 16
    finally:
        log_kit.FailingFile.pread = genuine  # type: ignore[method-assign]


# --- timestamps


def test_the_first_record_not_older_than_a_timestamp(kit: Kit) -> None:
    log = filled(kit)
    for seconds in range(0, 59, 3):
        exact = START_MS + 1000 * seconds
        assert log.offset_for_timestamp(exact) == TimestampAndOffset(exact, 2 * seconds, 0)
        assert log.offset_for_timestamp(exact + 1) == TimestampAndOffset(exact + 1, 2 * seconds + 1, 0)
        assert log.offset_for_timestamp(exact + 2) == TimestampAndOffset(exact + 1000, 2 * seconds + 2, 0)
    assert log.offset_for_timestamp(0) == TimestampAndOffset(START_MS, 0, 0)
    assert log.offset_for_timestamp(START_MS + 59_002) is None
    assert log.offset_for_timestamp(START_MS + 5000, limit_offset=10) is None
    log.advance_high_watermark(log.log_end_offset)
    log.increment_log_start_offset(5)
    assert log.offset_for_timestamp(0) == TimestampAndOffset(START_MS + 2001, 5, 0)


def test_timestamps_out_of_order(tmp_path: Path) -> None:
    kit = Kit(tmp_path, index_interval_bytes=1)
    log = kit.open()
    stamps = [50, 10, 99, 20, 98, 100, 30, 100]
    for stamp in stamps:
        kit.values(log, b"x", timestamp=START_MS + stamp, leader_epoch=6)
    for reopened in (False, True):
        if reopened:
            log.close()
            log = kit.open(clean=True)
        for asked in range(101):
            first = next(offset for offset, stamp in enumerate(stamps) if stamp >= asked)
            assert log.offset_for_timestamp(START_MS + asked) == TimestampAndOffset(START_MS + stamps[first], first, 6)
        assert log.max_timestamp_offset() == TimestampAndOffset(START_MS + 100, 5, 6)


def test_an_empty_log_has_no_timestamps(kit: Kit) -> None:
    log = kit.open()
    assert log.max_timestamp_offset() is None
    assert log.offset_for_timestamp(0) is None
    assert read_all(log) == []


def test_max_timestamp_within_a_batch_is_the_exact_record(kit: Kit) -> None:
    log = kit.open()
    kit.values(log, b"a", b"b", b"c", timestamp=START_MS)
    assert log.max_timestamp_offset() == TimestampAndOffset(START_MS + 2, 2, 0)


def test_the_data_is_sent_as_it_lies_on_disk(kit: Kit) -> None:
    log = filled(kit, 3)
    piece = log.read(0, 1 << 20, log.log_end_offset).slice
    assert piece is not None
    assert os.pread(piece.file.fileno(), piece.size, piece.position) == kit.name(0, ".log").read_bytes()


def test_bytes_that_are_no_batch_are_reported_as_corrupt(kit: Kit) -> None:
    log = filled(kit, 3)
    log.close()
    log = kit.open(clean=True)
    with kit.name(0, ".log").open("r+b") as file:
        file.write(bytes(100))
    with pytest.raises(CorruptMessageError, match="no record batch at position 0"):
        log.read(2, 100, log.log_end_offset)
