from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from braidlog.core.clock import ManualClock
from braidlog.core.errors import StorageFault
from braidlog.core.protocol_errors import OffsetOutOfRangeError
from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.log.unified_log import DeletedSegment, UnifiedLog
from braidlog.testing.simulated.disk import NAMES, MemoryDisk
from braidlog.testing.simulated.memory_files import MemoryFiles
from support.log_kit import START_MS, FailingDisk, Kit, as_slice, batch, create_cleaned, producers_of, read_all


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path, segment_bytes=400, index_interval_bytes=100)


def filled(kit: Kit, batches: int = 20, leader_epoch: int = 0) -> UnifiedLog:
    """Five batches of two records to a segment, all replicated."""
    log = kit.open()
    for number in range(batches):
        kit.append(
            log,
            batch(b"a", b"b", timestamp=kit.clock.wall_ms(), producer_id=3, epoch=0, sequence=2 * number),
            leader_epoch,
        )
        kit.clock.advance(1)
    log.advance_high_watermark(log.log_end_offset)
    return log


def bases(log: UnifiedLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def offsets(log: UnifiedLog) -> list[int]:
    return [offset for offset, _ in read_all(log)]


# --- roll


def test_rolling_completes_the_old_segment_on_disk(kit: Kit) -> None:
    log = filled(kit, 5)
    old = log.segments[0]
    new = log.roll()
    assert bases(log) == [0, 10]
    assert new is log.segments[-1]
    assert kit.name(0, ".index").stat().st_size == 8 * old.offset_index.count > 0
    assert kit.name(0, ".timeindex").stat().st_size == 12 * old.time_index.count > 0
    assert old.time_index.last() == (START_MS + 4001, 9)
    assert not old.offset_index.file.is_resident
    assert log.roll() is new
    assert bases(log) == [0, 10]


# --- truncation


def test_truncation_at_every_offset_leaves_what_lies_before(tmp_path: Path) -> None:
    source = Kit(tmp_path / "source", segment_bytes=400, index_interval_bytes=100)
    filled(source).close()
    for offset in range(0, 41, 3):
        kit = Kit(tmp_path / f"{offset}", segment_bytes=400, index_interval_bytes=100)
        shutil.copytree(source.path, kit.path)
        kit.clock.advance(20)
        log = kit.open(clean=True, high_watermark=40)
        assert log.truncate_to(offset) == (offset < 40)
        assert (log.log_end_offset, log.next_offset, log.high_watermark) == (offset, offset, offset)
        assert log.recovery_point == offset
        whole = offset - offset % 2
        assert offsets(log) == list(range(whole))
        assert [producer.last_sequence for producer in producers_of(log)] == ([whole - 1] if whole else [])
        info = kit.append(log, batch(b"n", producer_id=3, epoch=0, sequence=whole))
        assert info.first_offset == offset
        assert offsets(log) == [*range(whole), offset]
        log.close()
        assert offsets(kit.open(clean=True)) == [*range(whole), offset]


def test_truncation_forgets_staged_batches_epochs_and_transactions(kit: Kit) -> None:
    log = kit.open()
    kit.values(log, b"a", leader_epoch=1)
    kit.append(log, batch(b"t", producer_id=9, epoch=0, sequence=0, transactional=True), leader_epoch=2)
    kit.marker(log, 9, 0, commit=False, leader_epoch=2)
    log.advance_high_watermark(3)
    assert len(log.aborted_transactions(0, 3)) == 1
    kit.stage(log, batch(b"staged"), leader_epoch=3)
    log.truncate_to(2)
    assert (log.has_staged, log.next_offset) == (False, 2)
    assert log.aborted_transactions(0, 3) == []
    assert log.last_stable_offset == 1  # the transaction is open again
    log.truncate_to(1)
    assert log.leader_epochs.entries == [(1, 0)]
    assert log.last_stable_offset == 1
    assert producers_of(log) == []


def test_truncation_to_the_end_only_drops_a_conflicting_epoch(kit: Kit) -> None:
    log = filled(kit, 2)
    log.assign_leader_epoch(5, 4)
    assert not log.truncate_to(4)
    assert log.leader_epochs.entries == [(0, 0)]
    assert offsets(log) == [0, 1, 2, 3]


def test_truncation_below_the_first_segment_starts_there_anew(kit: Kit) -> None:
    log = filled(kit)
    log.delete_segments(1)
    assert log.truncate_to(3)
    assert (bases(log), log.log_start_offset, log.log_end_offset, log.high_watermark) == ([3], 3, 3, 3)


def test_starting_over_elsewhere(kit: Kit) -> None:
    log = filled(kit)
    kit.stage(log, batch(b"staged"))
    log.truncate_fully_and_start_at(1000)
    assert (bases(log), log.log_start_offset, log.log_end_offset, log.next_offset) == ([1000], 1000, 1000, 1000)
    assert (producers_of(log), log.leader_epochs.entries) == ([], [])
    kit.values(log, b"x")
    log.close()
    assert [name for name in kit.names() if not name.startswith(f"{1000:020d}")] == [
        f"{1001:020d}.snapshot",
        "leader-epoch-checkpoint",
    ]
    assert offsets(kit.open(clean=True)) == [1000]


def test_a_power_cut_does_not_bring_back_what_was_truncated() -> None:
    """Neither segments and snapshots behind what was appended in their place, nor a part of the log without epoch."""
    for seed in range(60):
        disk = MemoryDisk(random.Random(seed), ManualClock())
        files = MemoryFiles(disk)
        files.mkdir("/d")
        files.sync_dir("/")
        kit = Kit(Path("/d"), files, segment_bytes=400, index_interval_bytes=100)
        files.sync_dir("/d")
        log = filled(kit, leader_epoch=1)
        log.sync_to(40)
        log.truncate_to(16 + seed % 9)
        end = log.log_end_offset
        for number in range(seed % 13):
            kit.values(log, b"new %d" % number, leader_epoch=2)
        disk.cut_power()
        again = Kit(Path("/d"), MemoryFiles(disk), segment_bytes=400).open(recovery_point=end)
        found = offsets(again)
        assert found == sorted(set(found))
        for segment in again.segments:
            walk = segment.walk(0)
            while walk.advance():
                assert walk.leader_epoch == (1 if walk.base_offset < end else 2)
                assert again.leader_epochs.epoch_for_offset(walk.base_offset) == walk.leader_epoch


def test_a_truncation_that_a_fault_ends_leaves_no_gap() -> None:
    """Nor does a crash at that point: what is found is what is there."""
    for removals in range(12):
        disk = MemoryDisk(random.Random(removals), ManualClock())
        kit = Kit(Path("/d"), MemoryFiles(disk), segment_bytes=400)
        log = filled(kit)
        assert len(bases(log)) == 4
        disk.fail(NAMES, after=removals, lasting=True)
        with contextlib.suppress(StorageFault):
            log.truncate_to(3)
        disk.repair()
        left = offsets(Kit(Path("/d"), MemoryFiles(disk), segment_bytes=400).open())
        assert left == list(range(len(left)))


def test_a_sync_that_comes_after_a_truncation_vouches_for_what_is_left(kit: Kit) -> None:
    log = filled(kit, 3)
    log.truncate_to(2)
    log.sync_to(6)
    assert log.recovery_point == 2


def test_a_sync_that_a_truncation_overtakes_does_not_move_the_recovery_point(tmp_path: Path) -> None:
    disk = FailingDisk()
    kit = Kit(tmp_path, disk)
    log = filled(kit, 3)

    disk.synced = Meanwhile(lambda: log.truncate_to(2))
    log.sync_to(6)
    assert (log.log_end_offset, log.recovery_point) == (2, 0)
    log.sync_to(2)
    assert log.recovery_point == 2


class Meanwhile(list[str]):
    """The names that were synced; after the first one something happens, as if on another thread."""

    def __init__(self, happens: Callable[[], object]) -> None:
        super().__init__()
        self._happens = happens

    def append(self, path: str) -> None:
        super().append(path)
        if len(self) == 1:
            self._happens()


def test_a_sync_survives_deletion_and_renaming_of_what_it_syncs(tmp_path: Path) -> None:
    disk = FailingDisk()
    kit = Kit(tmp_path, disk, capacity=1, segment_bytes=400, index_interval_bytes=100)
    log = filled(kit)

    def retention() -> None:
        for deleted in log.delete_segments(2):
            deleted.remove()

    disk.synced = Meanwhile(retention)
    log.sync_to(30)
    assert log.recovery_point == 30
    assert [name for name in kit.names() if name.startswith((f"{0:020d}", f"{10:020d}"))] == []
    disk.synced = Meanwhile(lambda: log.rename_dir("orders-0.1234-delete"))
    log.sync_to(40)
    assert log.recovery_point == 40
    assert not os.path.exists(kit.directory)


# --- deletion


def test_deleted_segments_keep_their_files_until_they_are_removed(kit: Kit) -> None:
    log = filled(kit)
    first, second, *rest = bases(log)
    slice_of_first = log.read(0, 1 << 20, log.log_end_offset).slice
    (deleted,) = log.delete_segments(1)
    assert bases(log) == [second, *rest]
    assert log.log_start_offset == second
    assert (deleted.base_offset, deleted.size > 0) == (first, True)
    assert kit.name(0, ".log.deleted").exists()
    assert not kit.name(0, ".log").exists()
    assert slice_of_first is not None
    assert len(slice_of_first.read()) == slice_of_first.size
    (again,) = log.delete_segments(1)
    assert kit.name(second, ".snapshot.deleted").exists()
    deleted.remove()
    deleted.remove()
    again.remove()
    assert not any(name.endswith(".deleted") for name in kit.names())
    assert offsets(log) == list(range(rest[0], 40))
    assert log.leader_epochs.entries == [(0, rest[0])]


def test_nothing_at_or_past_the_high_watermark_is_deleted(kit: Kit) -> None:
    log = kit.open()
    for _ in range(20):
        kit.values(log, b"x" * 60)
    second = bases(log)[1]
    log.advance_high_watermark(second + 1)
    assert [deleted.base_offset for deleted in log.delete_segments(99)] == [0]
    assert log.log_start_offset == second


def test_deleting_all_rolls_first_so_that_offsets_go_on(kit: Kit) -> None:
    log = filled(kit)
    count = len(log.segments)
    assert len(log.delete_segments(count)) == count
    assert (bases(log), log.log_start_offset, log.log_end_offset) == ([40], 40, 40)
    assert log.delete_segments(1) == []
    assert kit.append(log, batch(b"x", producer_id=3, epoch=0, sequence=40)).first_offset == 40


def test_the_start_offset_moves_only_forward_and_not_past_the_high_watermark(kit: Kit) -> None:
    log = kit.open()
    for _ in range(4):
        kit.values(log, b"x", leader_epoch=7)
    log.advance_high_watermark(3)
    assert log.increment_log_start_offset(2)
    assert not log.increment_log_start_offset(1)
    with pytest.raises(OffsetOutOfRangeError, match="high watermark is 3"):
        log.increment_log_start_offset(4)
    assert (log.log_start_offset, log.leader_epochs.entries) == (2, [(7, 2)])
    log.close()
    log = kit.open(clean=True, log_start_offset=2)
    assert offsets(log) == [2, 3]


def test_a_renamed_directory_is_still_the_same_log(kit: Kit) -> None:
    log = filled(kit)
    held = log.read(0, 1 << 20, log.log_end_offset).slice
    assert held is not None
    log.rename_dir("orders-0.5f2e-delete")
    assert log.directory == f"{kit.data_directory}/orders-0.5f2e-delete"
    assert not os.path.exists(kit.directory)
    assert len(held.read()) == held.size
    kit.handles.capacity = 1
    kit.handles.handle(f"{kit.data_directory}/other").get()
    assert offsets(log) == list(range(40))
    log.close()
    assert os.path.exists(f"{log.directory}/{40:020d}.snapshot")


# --- the swap after compaction


def compacted(kit: Kit, log: UnifiedLog, count: int) -> tuple[list[LogSegment], list[LogSegment]]:
    """The first `count` segments with only every fourth batch left, as one `.cleaned` segment."""
    old = log.segments[:count]
    new = create_cleaned(kit, old[0].base_offset)
    for segment in old:
        walk = segment.walk(0)
        while walk.advance():
            if walk.base_offset % 8 == 0:
                new.append([walk.read()], walk.size, walk.last_offset, walk.max_timestamp, walk.last_offset)
    new.become_inactive()
    new.sync()
    new.sync_indexes()
    return [new], old


KEPT = [0, 1, 8, 9, 16, 17, 24, 25, 32, 33]


def expected_after_swap(first_kept: int) -> list[int]:
    return [offset for offset in KEPT if offset < first_kept] + list(range(first_kept, 40))


def test_compacted_segments_take_the_place_of_the_old_ones(kit: Kit) -> None:
    log = filled(kit)
    first_kept = bases(log)[2]
    new, old = compacted(kit, log, 2)
    held = log.read(0, 1 << 20, log.log_end_offset).slice
    assert held is not None
    deleted = log.replace_segments(new, old)
    assert offsets(log) == expected_after_swap(first_kept)
    assert len(held.read()) == held.size
    for segment in deleted:
        segment.remove()
    assert [name for name in kit.names() if name.endswith((".swap", ".cleaned", ".deleted"))] == []
    log.close()
    log = kit.open(clean=True)
    assert offsets(log) == expected_after_swap(first_kept)
    assert log.recovery.rebuilt_indexes == []
    log.close(flush=False)
    assert offsets(kit.open()) == expected_after_swap(first_kept)


SWAP_PROGRAM = """
import sys
from collections.abc import Callable
from pathlib import Path
sys.path[:0] = sys.argv[2:]
from support.log_kit import Kit
from test_local_log import compacted
kit = Kit(Path(sys.argv[1]), segment_bytes=400, index_interval_bytes=100)
log = kit.open(clean=True, high_watermark=40)
new, old = compacted(kit, log, 2)
log.replace_segments(new, old)
"""


@pytest.mark.parametrize("passage", [1, 2, 3])
def test_a_crash_in_the_middle_of_the_swap_leaves_all_of_the_new(tmp_path: Path, passage: int) -> None:
    kit = Kit(tmp_path, segment_bytes=400, index_interval_bytes=100)
    log = filled(kit)
    first_kept = bases(log)[2]
    log.close()
    here = str(Path(__file__).parent)
    done = subprocess.run(
        [sys.executable, "-c", SWAP_PROGRAM, str(tmp_path), here, *sys.path],
        env={**os.environ, "BRAIDLOG_CRASH_AT": f"mid-swap:{passage}"},
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL
    log = kit.open(recovery_point=40, high_watermark=40)
    assert offsets(log) == expected_after_swap(first_kept)
    assert log.recovery.lost == []
    assert [name for name in kit.names() if name.endswith((".swap", ".cleaned", ".deleted"))] == []


def test_an_unfinished_set_of_compacted_segments_leaves_all_of_the_old(kit: Kit) -> None:
    log = filled(kit)
    new, _ = compacted(kit, log, 2)
    second = create_cleaned(kit, bases(log)[2])
    log.close()
    # The last segment was already renamed, the first one not yet.
    second.become_inactive()
    second.change_suffix(".swap")
    log = kit.open(clean=True)
    assert offsets(log) == list(range(40))
    assert [name for name in kit.names() if name.endswith((".swap", ".cleaned", ".deleted"))] == []
    assert len(new) == 1


@pytest.mark.parametrize("position", range(13))
@pytest.mark.parametrize("lasting", [False, True])
def test_a_full_disk_in_the_middle_of_the_swap_loses_nothing(position: int, lasting: bool) -> None:
    clock = ManualClock()
    disk = MemoryDisk(random.Random(1), clock)
    kit = Kit(Path("/data"), MemoryFiles(disk), segment_bytes=400, index_interval_bytes=100)
    log = filled(kit)
    first_kept = bases(log)[2]
    new, old = compacted(kit, log, 2)
    disk.fail(NAMES, code=errno.ENOSPC, after=position, lasting=lasting)
    deleted: list[DeletedSegment] = []
    with contextlib.suppress(StorageFault):
        deleted = log.replace_segments(new, old)
    # Either all of the old or all of the new, whatever the next start would make of it.
    everything = list(range(40))
    assert offsets(log) in (everything, expected_after_swap(first_kept))
    disk.repair()
    assert bool(log.segments[0].suffix) == log.has_unfinished_swap
    deleted += log.finish_swap()
    now = offsets(log)
    for segment in deleted:
        segment.remove()
    left = MemoryFiles(disk).listdir(kit.directory)
    assert [name for name in left if name.endswith(".deleted")] == []
    # Where not even a removal works, the next start has to do it.
    assert lasting or [name for name in left if name.endswith(".swap")] == []
    assert now in (everything, expected_after_swap(first_kept))
    assert offsets(kit.open()) == now
    # And it can be done again.
    if now == everything:
        log.replace_segments(*compacted(kit, log, 2))
        assert offsets(log) == expected_after_swap(first_kept)


def test_a_swap_that_a_full_disk_interrupted_is_finished_by_the_next_start() -> None:
    disk = MemoryDisk(random.Random(1), ManualClock())
    kit = Kit(Path("/data"), MemoryFiles(disk), segment_bytes=400, index_interval_bytes=100)
    log = filled(kit)
    first_kept = bases(log)[2]
    disk_fails = False
    for position in range(3, 13):
        new, old = compacted(kit, log, 2)
        disk.fail(NAMES, code=errno.ENOSPC, after=position, lasting=True)
        with contextlib.suppress(StorageFault):
            log.replace_segments(new, old)
        disk.repair()
        disk_fails = log.has_unfinished_swap
        if disk_fails:
            break
    assert disk_fails
    again = kit.open()
    assert offsets(again) == expected_after_swap(first_kept)


def test_what_a_full_disk_does_not_let_go_stays_in_the_log() -> None:
    disk = MemoryDisk(random.Random(1), ManualClock())
    kit = Kit(Path("/data"), MemoryFiles(disk), segment_bytes=400, index_interval_bytes=100)
    log = filled(kit)
    second, third, fourth = bases(log)[1:4]
    # Three renames for each segment and one for its snapshot: the second segment stays.
    disk.fail(NAMES, code=errno.ENOSPC, after=5, lasting=True)
    deleted = log.delete_segments(3)
    disk.repair()
    assert [segment.base_offset for segment in deleted] == [0]
    assert bases(log)[:3] == [second, third, fourth]
    assert log.log_start_offset == fourth
    assert [segment.base_offset for segment in log.delete_segments(2)] == [second, third]
    assert offsets(log)[0] == fourth


# --- sync and close


def test_syncing_moves_the_recovery_point_and_covers_directory_and_epochs(tmp_path: Path) -> None:
    disk = FailingDisk()
    kit = Kit(tmp_path, disk, segment_bytes=400)
    log = filled(kit)
    rolled_at = bases(log)[-1]
    disk.synced.clear()
    log.sync_to(rolled_at)
    synced = {os.path.basename(path) for path in disk.synced}
    for base in bases(log)[:-1]:
        assert {f"{base:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")} <= synced
    assert f"{rolled_at:020d}.log" not in synced
    assert {"leader-epoch-checkpoint", "orders-0"} <= synced
    assert (log.recovery_point, log.unflushed_messages) == (rolled_at, 40 - rolled_at)
    disk.synced.clear()
    kit.clock.advance(7)
    log.sync_to(40)
    assert [os.path.basename(path) for path in disk.synced] == [f"{rolled_at:020d}.log"]
    assert (log.unflushed_messages, log.last_flush_ms) == (0, kit.clock.wall_ms())
    disk.synced.clear()
    log.sync_to(40)
    assert disk.synced == []


def test_a_failed_sync_is_a_storage_fault_and_promises_nothing(tmp_path: Path) -> None:
    disk = FailingDisk()
    kit = Kit(tmp_path, disk)
    log = filled(kit, 3)
    disk.unsyncable = True
    with pytest.raises(StorageFault, match="Input/output error"):
        log.sync_to(6)
    assert log.recovery_point == 0


def test_closing_writes_what_is_staged(kit: Kit) -> None:
    log = kit.open()
    kit.stage(log, batch(b"x"))
    log.close()
    assert log.recovery_point == 1
    assert offsets(kit.open(clean=True)) == [0]


def test_changed_settings_apply_to_the_next_append(kit: Kit) -> None:
    log = kit.open()
    kit.values(log, b"a")
    log.update_settings(kit.settings._replace(message_timestamp_type="LogAppendTime", segment_bytes=100))
    info = kit.values(log, b"b", timestamp=START_MS - 5)
    assert info.rolled
    assert info.log_append_time == kit.clock.wall_ms()


def test_many_logs_share_few_descriptors(tmp_path: Path) -> None:
    kit = Kit(tmp_path, capacity=3)
    logs = []
    for number in range(12):
        kit.directory = f"{tmp_path}/orders-{number}"
        logs.append(kit.open())
    for turn in range(3):
        for number, log in enumerate(logs):
            data = batch(b"%d-%d" % (number, turn), base_offset=turn)
            log.append_as_follower(as_slice(data), now_ms=START_MS)
            log.write_staged()
            assert kit.handles.open_count <= 3
    for number, log in enumerate(logs):
        assert read_all(log) == [(turn, b"%d-%d" % (number, turn)) for turn in range(3)]
