from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.storage.log.log_segment import LogSegment, LogSegments
from braidlog.storage.log.segment_file_names import DELETED_SUFFIX
from support.log_kit import START_MS, FailingDisk, Kit, batch

BASE = 100
BATCHES = [
    batch(b"%d" % number, b"x", base_offset=BASE + 2 * number, timestamp=START_MS + number) for number in range(10)
]
SIZE = len(BATCHES[0])


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    kit = Kit(tmp_path)
    kit.path.mkdir()
    return kit


def created(kit: Kit, base_offset: int = BASE) -> LogSegment:
    """An index entry for every second batch."""
    return LogSegment.create(
        kit.files, kit.handles, kit.directory, base_offset, created_ms=START_MS, interval_bytes=SIZE
    )


def reopened(kit: Kit) -> LogSegment:
    return LogSegment.open(kit.files, kit.handles, kit.directory, BASE, created_ms=START_MS, interval_bytes=SIZE)


def filled(kit: Kit) -> LogSegment:
    segment = created(kit)
    for number, data in enumerate(BATCHES):
        last = BASE + 2 * number + 1
        segment.append([data], SIZE, last, START_MS + number + 1, last)
    return segment


def test_batches_are_found_by_offset(kit: Kit) -> None:
    segment = filled(kit)
    segment.become_inactive()
    for found in (segment, reopened(kit)):
        for number in range(10):
            for offset in (BASE + 2 * number, BASE + 2 * number + 1):
                assert found.position_of(offset) == number * SIZE
        assert found.position_of(BASE + 20) == found.size == 10 * SIZE
        assert found.read_next_offset() == BASE + 20
        assert found.max_timestamp == START_MS + 10
        assert found.offset_of_max_timestamp == BASE + 19


def test_as_many_whole_batches_as_fit(kit: Kit) -> None:
    segment = filled(kit)
    assert segment.fit(0, segment.size, SIZE - 1) == (0, BASE)
    assert segment.fit(0, segment.size, 3 * SIZE + 5) == (3 * SIZE, BASE + 6)
    assert segment.fit(SIZE, segment.size, 1 << 20) == (10 * SIZE, BASE + 20)
    assert segment.fit(0, 4 * SIZE, 3 * SIZE) == (3 * SIZE, BASE + 6)
    for stop in range(1, 11):
        assert segment.fit(0, stop * SIZE, 1 << 20) == (stop * SIZE, BASE + 2 * stop), "nothing past the stop"


@pytest.mark.parametrize("offset", range(BASE, BASE + 21))
def test_truncation_removes_the_batch_that_holds_the_offset_and_all_after_it(kit: Kit, offset: int) -> None:
    segment = filled(kit)
    segment.truncate_to(offset)
    kept = (offset - BASE) // 2
    assert segment.size == kept * SIZE
    assert kit.name(BASE, ".log").stat().st_size == segment.size
    assert segment.read_next_offset() == BASE + 2 * kept
    assert segment.max_timestamp == (START_MS + kept if kept else -1)
    assert segment.offset_index.last()[1] <= segment.size


def test_a_failed_write_leaves_what_was_there(tmp_path: Path) -> None:
    disk = FailingDisk()
    kit = Kit(tmp_path, disk)
    kit.path.mkdir()
    segment = filled(kit)
    disk.room, disk.only = SIZE // 2, ".log"
    with pytest.raises(OSError, match="No space"):
        segment.write([BATCHES[0]], SIZE)
    assert segment.size == kit.name(BASE, ".log").stat().st_size == 10 * SIZE
    assert segment.truncation_unsynced
    disk.room = None
    segment.sync_truncation()
    assert not segment.truncation_unsynced
    assert disk.synced[-1].endswith(".log")


def test_torn_bytes_that_could_not_be_cut_off_go_before_the_next_write(tmp_path: Path) -> None:
    disk = FailingDisk()
    kit = Kit(tmp_path, disk)
    kit.path.mkdir()
    segment = created(kit)
    disk.room, disk.only, disk.stuck = 10, ".log", True
    with pytest.raises(OSError, match=r".*"):
        segment.write([BATCHES[0]], SIZE)
    assert segment.size == 0
    assert kit.name(BASE, ".log").stat().st_size == 10
    disk.room, disk.stuck = None, False
    segment.write([BATCHES[0]], SIZE)
    assert kit.name(BASE, ".log").read_bytes() == BATCHES[0]


def test_creating_empties_what_a_failed_attempt_left(kit: Kit) -> None:
    for suffix in (".log", ".index", ".timeindex", ".txnindex"):
        kit.name(BASE, suffix).write_bytes(bytes(34))
    created(kit)
    assert {name: (kit.path / name).stat().st_size for name in kit.names()} == {
        f"{BASE:020d}.index": 0,
        f"{BASE:020d}.log": 0,
        f"{BASE:020d}.timeindex": 0,
        f"{BASE:020d}.txnindex": 0,
    }


def test_a_segment_changes_its_suffix_and_goes(kit: Kit) -> None:
    segment = filled(kit)
    segment.become_inactive()
    segment.change_suffix(DELETED_SUFFIX)
    assert all(name.endswith(DELETED_SUFFIX) for name in kit.names())
    assert segment.read_at(SIZE, 0) == BATCHES[0]
    segment.remove()
    assert kit.names() == []


def test_segments_are_kept_in_order_and_found_by_offset(kit: Kit) -> None:
    segments = LogSegments()
    made = {base: created(kit, base) for base in (200, 100, 300)}
    for segment in made.values():
        segments.add(segment)
    assert [segment.base_offset for segment in segments.items] == [100, 200, 300]
    assert (segments.first, segments.active) == (made[100], made[300])
    assert [segments.floor(offset) for offset in (5, 100, 199, 200, 999)] == [0, 0, 0, 1, 2]
    replacement = created(kit, 200)
    segments.add(replacement)
    segments.remove(made[200])
    assert segments.items == [made[100], replacement, made[300]]
    segments.remove(replacement)
    assert segments.items == [made[100], made[300]]
