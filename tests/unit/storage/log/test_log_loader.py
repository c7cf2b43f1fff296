from __future__ import annotations

import errno
import random
import re
from pathlib import Path

import pytest

from braidlog.core.clock import ManualClock
from braidlog.core.errors import StorageFault, is_disk_full
from braidlog.core.types import TopicPartition
from braidlog.testing.simulated.disk import GROWTH, MemoryDisk
from braidlog.testing.simulated.memory_files import MemoryFiles
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.builder import build_message_set
from braidlog.wire.records.reading import Record
from support.log_kit import (
    PARTITION,
    START_MS,
    FailingDisk,
    Kit,
    as_slice,
    batch,
    crashed,
    fill,
    producers_of,
    read_all,
)


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path, segment_bytes=1000, index_interval_bytes=200)


def closed(kit: Kit, batches: int = 30) -> list[tuple[int, bytes | None]]:
    log = kit.open()
    content = fill(kit, log, batches)
    log.close()
    return content


def index_bytes(kit: Kit) -> dict[str, bytes]:
    kept = ("index", ".snapshot", "checkpoint")
    return {name: (kit.path / name).read_bytes() for name in kit.names() if name.endswith(kept)}


def test_a_clean_start_reads_no_segment_and_finds_everything(kit: Kit) -> None:
    content = closed(kit)
    before = index_bytes(kit)
    log = kit.open(clean=True, recovery_point=30)
    assert (log.recovery.segments_scanned, log.recovery.lost, log.recovery_point) == (0, [], 30)
    assert read_all(log) == content
    assert producers_of(log)[0].last_sequence == 29
    assert kit.append(log, batch(b"x", producer_id=5, epoch=0, sequence=30)).first_offset == 30
    log.close(flush=False)
    assert {name: data for name, data in index_bytes(kit).items() if name in before} == before


def test_after_a_crash_the_indexes_are_what_a_clean_stop_would_have_left(tmp_path: Path) -> None:
    undisturbed = Kit(tmp_path / "a", segment_bytes=1000, index_interval_bytes=200)
    closed(undisturbed)
    broken = Kit(tmp_path / "b", segment_bytes=1000, index_interval_bytes=200)
    crashed(broken)
    log = broken.open()
    assert log.recovery.segments_scanned == len(log.segments) == 3
    log.close()
    assert index_bytes(broken) == index_bytes(undisturbed)


def test_only_segments_from_the_recovery_point_on_are_read_with_progress(kit: Kit) -> None:
    content = crashed(kit)
    steps: list[tuple[TopicPartition, int, int, int, int]] = []
    log = kit.open(recovery_point=15, progress=lambda *step: steps.append(step))
    bases = [segment.base_offset for segment in log.segments]
    assert log.recovery.segments_scanned == len([base for base in bases if base >= bases[1]]) == 2
    assert [step[:3] for step in steps] == [(PARTITION, 0, 2), (PARTITION, 1, 2), (PARTITION, 2, 2)]
    assert steps[-1][3] == steps[-1][4] > 0
    assert log.recovery_point == 15
    assert read_all(log) == content


def test_the_tail_cut_at_every_byte_loses_only_the_torn_batch(tmp_path: Path) -> None:
    source = Kit(tmp_path / "source")
    crashed(source, 3)
    data = source.name(0, ".log").read_bytes()
    ends = [header.end for header in iterate_headers(data, 0, len(data))]
    for cut in range(len(data)):
        kit = Kit(tmp_path / f"{cut}")
        kit.path.mkdir(parents=True)
        kit.name(0, ".log").write_bytes(data[:cut])
        log = kit.open()
        whole = len([end for end in ends if end <= cut])
        sound = ends[whole - 1] if whole else 0
        assert log.log_end_offset == whole
        assert [offset for offset, _ in read_all(log)] == list(range(whole))
        assert kit.name(0, ".log").stat().st_size == sound
        if cut == sound:
            assert log.recovery.lost == []
        else:
            (lost,) = log.recovery.lost
            assert (lost.first_offset, lost.position, lost.size) == (whole, sound, cut - sound)
            assert lost.saved_as is not None
            assert Path(lost.saved_as).read_bytes() == data[sound:cut]
        assert [producer.last_sequence for producer in producers_of(log)] == ([whole - 1] if whole else [])
        assert kit.append(log, batch(b"x", producer_id=5, epoch=0, sequence=whole)).first_offset == whole
        log.close(flush=False)


@pytest.mark.parametrize("field", [0, 8, 16, 17, 21, 23, 40, 57, 63])
def test_a_flipped_bit_ends_the_log_there_and_names_what_is_lost(kit: Kit, field: int) -> None:
    crashed(kit)
    path = kit.name(0, ".log")
    data = bytearray(path.read_bytes())
    target = iterate_headers(bytes(data), 0, len(data))[4]
    data[target.position + field] ^= 0x40
    path.write_bytes(data)

    log = kit.open()
    bases = [int(name[:20]) for name in kit.names() if name.endswith(".log")]
    assert bases == [0]
    assert log.log_end_offset == 4
    assert [offset for offset, _ in read_all(log)] == [0, 1, 2, 3]
    first, *rest = log.recovery.lost
    assert (first.path, first.position, first.first_offset) == (str(path), target.position, 4)
    assert first.saved_as == f"{kit.directory}/lost-{4:020d}.tail"
    assert Path(first.saved_as).read_bytes() == bytes(data[target.position :])
    assert [lost.first_offset for lost in rest] == [12, 24]
    assert [lost.end_offset for lost in rest] == [24, 30]
    assert all(lost.saved_as is not None and Path(lost.saved_as).exists() for lost in rest)
    assert re.search("offsets 4 to", str(first))
    assert first.end_offset == 12
    assert producers_of(log)[0].last_sequence == 3


def test_zeros_at_the_end_are_cut_off_even_on_a_full_disk(tmp_path: Path) -> None:
    disk = FailingDisk()
    kit = Kit(tmp_path, disk)
    content = crashed(kit, 3)
    with kit.name(0, ".log").open("ab") as file:
        file.write(bytes(5000))
    disk.room, disk.only = 10, ".tail"
    log = kit.open()
    assert read_all(log) == content
    assert (log.recovery.lost, log.recovery.blank_bytes) == ([], 5000)


# --- indexes


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "cut", "nonsense"])
def test_a_broken_index_is_built_again(kit: Kit, clean: bool, suffix: str, damage: str) -> None:
    content = closed(kit)
    before = index_bytes(kit)
    path = kit.name(0, suffix)
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.write_bytes(b"\x7f" * 24 if suffix == ".index" else b"\x80" * 24)
    log = kit.open(clean=clean, recovery_point=30)
    assert log.recovery.rebuilt_indexes == [str(kit.name(0, ".index")), str(kit.name(0, ".timeindex"))]
    assert read_all(log) == content
    assert log.offset_for_timestamp(START_MS + 3000) is not None
    log.close()
    assert index_bytes(kit) == before


def test_a_missing_index_above_a_corrupt_batch_leaves_a_gap_in_a_clean_log(kit: Kit) -> None:
    closed(kit)
    path = kit.name(0, ".log")
    data = bytearray(path.read_bytes())
    target = iterate_headers(bytes(data), 0, len(data))[4]
    data[target.position + 63] ^= 1
    path.write_bytes(data)
    kit.name(0, ".index").unlink()
    log = kit.open(clean=True, recovery_point=30)
    assert [offset for offset, _ in read_all(log)] == [0, 1, 2, 3, *range(12, 30)]
    assert [(lost.first_offset, lost.end_offset) for lost in log.recovery.lost] == [(4, 12)]


def test_indexes_that_a_crashed_kafka_left_full_of_zeros_are_understood(kit: Kit) -> None:
    content = closed(kit)
    before = index_bytes(kit)
    last = max(int(name[:20]) for name in kit.names() if name.endswith(".log"))
    for suffix in (".index", ".timeindex"):
        with kit.name(last, suffix).open("ab") as file:
            file.write(bytes(10_485_760 // 24 * 24))
    log = kit.open(clean=True, recovery_point=30)
    assert read_all(log) == content
    assert log.recovery.rebuilt_indexes == []
    log.close()
    assert index_bytes(kit) == before


def test_indexes_without_a_log_and_temporary_files_go(kit: Kit) -> None:
    content = closed(kit)
    kit.name(77, ".index").write_bytes(b"")
    kit.name(77, ".timeindex").write_bytes(b"")
    (kit.path / "leader-epoch-checkpoint.tmp").write_bytes(b"0\n")
    kit.name(0, ".log.deleted").write_bytes(b"x")
    (kit.path / "partition.metadata").write_bytes(b"version: 0\n")
    log = kit.open(clean=True)
    assert sorted(log.recovery.removed_files) == [
        f"{0:020d}.log.deleted",
        f"{77:020d}.index",
        f"{77:020d}.timeindex",
        "leader-epoch-checkpoint.tmp",
    ]
    assert (kit.path / "partition.metadata").exists()
    assert read_all(log) == content


# --- epochs, producers, offsets


@pytest.mark.parametrize("damage", [None, b"", b"0\n1\n9 9\nmore\n"])
def test_leader_epochs_are_read_from_the_log_where_the_checkpoint_is_lost(kit: Kit, damage: bytes | None) -> None:
    log = kit.open()
    for epoch in (1, 1, 4, 4, 6):
        kit.values(log, b"x", leader_epoch=epoch)
    log.close()
    path = kit.path / "leader-epoch-checkpoint"
    path.unlink() if damage is None else path.write_bytes(damage)
    assert kit.open(clean=True).leader_epochs.entries == [(1, 0), (4, 2), (6, 4)]
    assert path.read_bytes() == b"0\n3\n1 0\n4 2\n6 4\n"


def test_epochs_past_the_end_of_a_cut_log_are_forgotten(kit: Kit) -> None:
    log = kit.open()
    kit.values(log, b"x", leader_epoch=1)
    kit.values(log, b"x", leader_epoch=2)
    log.close(flush=False)
    size = kit.name(0, ".log").stat().st_size
    with kit.name(0, ".log").open("r+b") as file:
        file.truncate(size - 1)
    assert kit.open().leader_epochs.entries == [(1, 0)]


def test_producer_state_comes_from_the_snapshot_and_the_log_after_it(kit: Kit) -> None:
    crashed(kit)
    expected = 29
    for damage in ("none", "corrupt last", "all missing"):
        if damage == "corrupt last":
            path = max(kit.path.glob("*.snapshot"))
            path.write_bytes(path.read_bytes()[:-1] + b"\xff")
        if damage == "all missing":
            for path in kit.path.glob("*.snapshot"):
                path.unlink()
        log = kit.open(recovery_point=25)
        (producer,) = producers_of(log)
        assert (producer.producer_id, producer.last_sequence, producer.last_offset) == (5, expected, expected)
        log.close(flush=False)


def test_expired_producers_are_not_loaded(kit: Kit) -> None:
    closed(kit)
    kit.clock.advance(86_400)
    assert producers_of(kit.open(clean=True)) == []


def test_transactions_survive_a_crash(kit: Kit) -> None:
    log = kit.open()
    kit.append(log, batch(b"a", producer_id=1, epoch=0, sequence=0, transactional=True))
    kit.append(log, batch(b"b", producer_id=2, epoch=0, sequence=0, transactional=True))
    kit.marker(log, 1, 0, commit=False, coordinator_epoch=3)
    expected = log.aborted_transactions(0, 3)
    assert [(txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset) for txn in expected] == [
        (1, 0, 2, 1)
    ]
    log.close(flush=False)
    kit.name(0, ".txnindex").unlink()
    log = kit.open(high_watermark=3)
    assert log.aborted_transactions(0, 3) == expected
    assert (log.last_stable_offset, log.high_watermark) == (1, 3)
    log.close()
    log = kit.open(clean=True, high_watermark=3)
    assert log.aborted_transactions(0, 3) == expected
    assert log.last_stable_offset == 1
    kit.marker(log, 2, 0, commit=True)
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 4


def test_a_log_that_ends_before_its_start_offset_begins_there_anew(kit: Kit) -> None:
    crashed(kit, 5)
    log = kit.open(log_start_offset=100, high_watermark=100)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (100, 100, 100)
    assert kit.values(log, b"x").first_offset == 100
    assert [segment.base_offset for segment in log.segments] == [100]


def test_an_empty_segment_that_a_failed_roll_left_does_not_hide_batches(kit: Kit) -> None:
    content = crashed(kit, 5)
    kit.name(3, ".log").write_bytes(b"")
    log = kit.open()
    assert read_all(log) == content
    assert [segment.base_offset for segment in log.segments] == [0]


def test_a_new_log_makes_its_directory_and_first_files(kit: Kit) -> None:
    log = kit.open()
    assert kit.names() == [f"{0:020d}.index", f"{0:020d}.log", f"{0:020d}.timeindex"]
    assert (log.log_start_offset, log.log_end_offset, log.leader_epochs.latest) == (0, 0, -1)


# --- a full disk


@pytest.mark.parametrize("lost", ["", ".index", ".snapshot", "leader-epoch-checkpoint"])
def test_recovery_needs_no_room(lost: str) -> None:
    """Also where an index, a snapshot or the epochs have to be found out again."""
    disk = MemoryDisk(random.Random(1), ManualClock())
    files = MemoryFiles(disk)
    kit = Kit(Path("/data"), files, segment_bytes=200, index_interval_bytes=100)
    log = kit.open()
    for number in range(6):
        kit.append(
            log,
            batch(b"a", b"b", producer_id=7, epoch=0, sequence=2 * number, transactional=True),
            leader_epoch=number // 3,
        )
        if number % 2:
            kit.marker(log, 7, 0, commit=number % 4 == 1, leader_epoch=number // 3)
    log.assign_leader_epoch(9, log.log_end_offset)
    expected = read_all(log)
    aborted = log.aborted_transactions(0, log.log_end_offset)
    assert len(log.segments) > 2
    assert aborted
    for name in files.listdir(kit.directory):
        if lost and name.endswith(lost):
            files.remove(f"{kit.directory}/{name}")
    disk.fail(*GROWTH, code=errno.ENOSPC, lasting=True)
    again = kit.open()
    assert read_all(again) == expected
    assert again.aborted_transactions(0, again.log_end_offset) == aborted
    assert again.leader_epochs.entries == [(0, 0), (1, again.leader_epochs.entries[1][1])]
    with pytest.raises(StorageFault) as refused:
        kit.values(again, b"x")
    assert is_disk_full(refused.value)
    disk.repair()
    kit.append(again, batch(b"c", producer_id=7, epoch=0, sequence=12), leader_epoch=2)
    again.close()
    reopened = kit.open(clean=True)
    assert len(read_all(reopened)) == len(expected) + 1
    assert reopened.leader_epochs.latest == 2
    assert reopened.recovery.rebuilt_indexes == []


def test_a_log_that_never_had_a_record_is_opened_without_room() -> None:
    disk = MemoryDisk(random.Random(1), ManualClock())
    kit = Kit(Path("/data"), MemoryFiles(disk))
    kit.open().assign_leader_epoch(3, 0)
    disk.fail(*GROWTH, code=errno.ENOSPC, lasting=True)
    log = kit.open()
    assert read_all(log) == []
    log.begin_leader_epoch(4)
    disk.repair()
    kit.values(log, b"x", leader_epoch=4)
    assert kit.open().leader_epochs.latest == 4


@pytest.mark.parametrize("checkpoint", [True, False])
def test_epochs_from_before_messages_of_an_old_format_are_not_read_from_the_log(kit: Kit, checkpoint: bool) -> None:
    log = kit.open()
    kit.values(log, b"a", leader_epoch=3)
    message = build_message_set([Record(timestamp=START_MS, value=b"b")], magic=1, base_offset=1)
    log.append_as_follower(as_slice(message), now_ms=START_MS)
    log.close()
    if not checkpoint:
        (kit.path / "leader-epoch-checkpoint").unlink()
    assert kit.open(clean=True).leader_epochs.entries == []
    assert kit.open().leader_epochs.entries == []
