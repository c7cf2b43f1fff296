from __future__ import annotations

from pathlib import Path

import pytest

from braidlog.core.errors import StorageFault, is_disk_full
from braidlog.core.protocol_errors import (
    InvalidProducerEpochError,
    OutOfOrderSequenceNumberError,
    RecordListTooLargeError,
)
from braidlog.storage.log.unified_log import UnexpectedOffsetError
from braidlog.wire.records.batch import iterate_headers
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.reading import Record
from support.log_kit import PARTITION, START_MS, FailingDisk, Kit, as_slice, batch, producers_of, read_all


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


def test_offsets_and_the_leader_epoch_are_stored_in_the_batches(kit: Kit) -> None:
    log = kit.open()
    first = kit.values(log, b"a", b"b", leader_epoch=4)
    second = kit.values(log, b"c", leader_epoch=4)
    assert (first.first_offset, first.last_offset, first.count, first.duplicate) == (0, 1, 2, False)
    assert (second.first_offset, second.last_offset) == (2, 2)
    data = kit.name(0, ".log").read_bytes()
    assert [(header.base_offset, header.leader_epoch) for header in iterate_headers(data, 0, len(data))] == [
        (0, 4),
        (2, 4),
    ]
    assert first.log_append_time == -1
    assert first.max_timestamp == START_MS + 1
    assert first.offset_of_max_timestamp == 1
    assert first.size + second.size == len(data) == log.size


def test_nothing_staged_is_visible_before_it_is_written(kit: Kit) -> None:
    log = kit.open()
    kit.values(log, b"a")
    kit.stage(log, batch(b"b"))
    kit.stage(log, batch(b"c"))
    assert (log.log_end_offset, log.next_offset, log.has_staged) == (1, 3, True)
    assert read_all(log) == [(0, b"a")]
    assert kit.name(0, ".log").stat().st_size == log.size
    assert not log.advance_high_watermark(3) or log.high_watermark == 1
    log.write_staged()
    assert (log.log_end_offset, log.next_offset, log.has_staged) == (3, 3, False)
    assert read_all(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_log_append_time_is_the_brokers(tmp_path: Path) -> None:
    kit = Kit(tmp_path, message_timestamp_type="LogAppendTime")
    log = kit.open()
    kit.clock.advance(5)
    info = kit.values(log, b"a", timestamp=START_MS - 1000)
    assert info.log_append_time == info.max_timestamp == START_MS + 5000


def test_a_batch_that_exceeds_a_segment_is_refused(tmp_path: Path) -> None:
    kit = Kit(tmp_path, segment_bytes=200)
    log = kit.open()
    with pytest.raises(RecordListTooLargeError, match=r"segment\.bytes=200"):
        kit.values(log, b"x" * 300)
    kit.values(log, b"x")


def test_segments_roll_by_size_with_the_base_offset_as_name(tmp_path: Path) -> None:
    kit = Kit(tmp_path, segment_bytes=500)
    log = kit.open()
    rolled = [kit.values(log, b"x" * 150).rolled for _ in range(5)]
    assert rolled == [False, False, True, False, True]
    assert [segment.base_offset for segment in log.segments] == [0, 2, 4]
    assert kit.name(2, ".log").exists()
    assert kit.name(2, ".snapshot").exists()
    assert [offset for offset, _ in read_all(log)] == [0, 1, 2, 3, 4]


def test_a_roll_between_staged_batches_writes_the_earlier_ones_first(tmp_path: Path) -> None:
    kit = Kit(tmp_path, segment_bytes=500)
    log = kit.open()
    for _ in range(3):
        kit.stage(log, batch(b"x" * 150))
    assert (log.log_end_offset, log.next_offset) == (2, 3)
    assert log.write_staged() == log.size, "what the roll wrote early is accounted for, too"
    assert log.write_staged() == 0
    assert [offset for offset, _ in read_all(log)] == [0, 1, 2]


def test_segments_roll_by_the_age_of_their_first_batch(tmp_path: Path) -> None:
    kit = Kit(tmp_path, segment_ms=10_000)
    log = kit.open()
    kit.values(log, b"a", timestamp=START_MS)
    assert not kit.values(log, b"b", timestamp=START_MS + 10_000).rolled
    assert kit.values(log, b"c", timestamp=START_MS + 10_001).rolled
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_jitter_makes_segments_roll_earlier(tmp_path: Path) -> None:
    kit = Kit(tmp_path, segment_ms=10_000, segment_jitter_ms=9_000)
    log = kit.open()
    jitter = log.segments[0].jitter_ms
    assert 0 < jitter < 9_000
    kit.values(log, b"a", timestamp=START_MS)
    assert not kit.values(log, b"b", timestamp=START_MS + 10_000 - jitter).rolled
    assert kit.values(log, b"c", timestamp=START_MS + 10_001 - jitter).rolled


def test_a_full_index_rolls(tmp_path: Path) -> None:
    kit = Kit(tmp_path, segment_index_bytes=24, index_interval_bytes=1)
    log = kit.open()
    for _ in range(9):
        kit.values(log, b"x")
        kit.clock.advance(1)
    assert len(log.segments) > 1
    assert all(segment.offset_index.count <= 3 for segment in log.segments)
    assert [offset for offset, _ in read_all(log)] == list(range(9))


def test_offsets_too_far_from_the_base_roll(kit: Kit) -> None:
    log = kit.open()
    far = 2**31 + 5
    log.append_as_follower(as_slice(batch(b"a", base_offset=0)), now_ms=START_MS)
    assert log.append_as_follower(as_slice(batch(b"b", base_offset=far)), now_ms=START_MS).rolled
    log.write_staged()
    assert [segment.base_offset for segment in log.segments] == [0, far]
    assert read_all(log) == [(0, b"a"), (far, b"b")]


# --- producers


def test_a_batch_that_comes_again_gets_its_old_offsets(kit: Kit) -> None:
    log = kit.open()
    sent = [batch(b"a", b"b", producer_id=9, epoch=0, sequence=2 * number) for number in range(7)]
    for data in sent:
        kit.append(log, data)
    size = log.size
    for number in range(2, 7):
        again = kit.append(log, sent[number])
        assert again.duplicate
        assert (again.first_offset, again.last_offset) == (2 * number, 2 * number + 1)
    assert (log.size, log.next_offset) == (size, 14)
    with pytest.raises(OutOfOrderSequenceNumberError):
        kit.append(log, sent[1])  # no longer among the last five


def test_a_staged_batch_is_already_a_duplicate_when_it_comes_again(kit: Kit) -> None:
    log = kit.open()
    data = batch(b"a", producer_id=9, epoch=0, sequence=0)
    kit.stage(log, data)
    again = kit.stage(log, data)
    assert again.duplicate
    assert again.first_offset == 0
    log.write_staged()
    assert read_all(log) == [(0, b"a")]


def test_a_refused_batch_changes_nothing(kit: Kit) -> None:
    log = kit.open()
    kit.append(log, batch(b"a", producer_id=9, epoch=1, sequence=0))
    for data in (
        batch(b"x", producer_id=9, epoch=1, sequence=5),
        batch(b"x", producer_id=9, epoch=2, sequence=1),
    ):
        with pytest.raises(OutOfOrderSequenceNumberError, match=str(PARTITION)):
            kit.append(log, data)
    with pytest.raises(InvalidProducerEpochError):
        kit.append(log, batch(b"x", producer_id=9, epoch=0, sequence=1))
    assert kit.append(log, batch(b"b", producer_id=9, epoch=1, sequence=1)).first_offset == 1
    assert read_all(log) == [(0, b"a"), (1, b"b")]


# --- followers


def test_a_follower_keeps_offsets_and_epochs(kit: Kit) -> None:
    log = kit.open()
    data = batch(b"a", b"b", base_offset=0, leader_epoch=3) + batch(b"c", base_offset=7, leader_epoch=5)
    info = log.append_as_follower(as_slice(data), now_ms=START_MS)
    log.write_staged()
    assert (info.first_offset, info.last_offset, log.log_end_offset) == (0, 7, 8)
    assert kit.name(0, ".log").read_bytes() == data
    assert log.leader_epochs.entries == [(3, 0), (5, 7)]
    assert read_all(log) == [(0, b"a"), (1, b"b"), (7, b"c")]
    with pytest.raises(UnexpectedOffsetError, match="offset 6 where 8"):
        log.append_as_follower(as_slice(batch(b"x", base_offset=6)), now_ms=START_MS)


# --- failing disks


@pytest.fixture
def disk() -> FailingDisk:
    return FailingDisk()


def test_a_full_disk_undoes_everything_staged_and_the_log_goes_on_once_there_is_room(
    tmp_path: Path, disk: FailingDisk
) -> None:
    kit = Kit(tmp_path, disk)
    log = kit.open()
    kit.append(log, batch(b"a", producer_id=9, epoch=0, sequence=0), leader_epoch=1)
    before = kit.name(0, ".log").read_bytes()

    lost = batch(b"b", producer_id=9, epoch=0, sequence=1)
    kit.stage(log, lost, leader_epoch=2)
    kit.stage(log, batch(b"c", producer_id=10, epoch=0, sequence=0), leader_epoch=2)
    disk.room, disk.only = 100, ".log"
    with pytest.raises(StorageFault, match=f"{PARTITION}: No space left"):
        log.write_staged()

    assert kit.name(0, ".log").read_bytes() == before
    assert (log.log_end_offset, log.next_offset, log.has_staged) == (1, 1, False)
    assert log.leader_epochs.latest == 1
    assert [producer.producer_id for producer in producers_of(log)] == [9]
    disk.room = None
    again = kit.append(log, lost, leader_epoch=2)
    assert (again.first_offset, again.duplicate) == (1, False)
    assert read_all(log) == [(0, b"a"), (1, b"b")]
    log.close()
    assert read_all(kit.open(clean=True)) == [(0, b"a"), (1, b"b")]


def test_bytes_that_could_not_be_cut_off_are_cut_before_the_next_write(tmp_path: Path, disk: FailingDisk) -> None:
    kit = Kit(tmp_path, disk)
    log = kit.open()
    kit.values(log, b"a")
    kit.stage(log, batch(b"b"))
    disk.room, disk.only, disk.stuck = 30, ".log", True
    with pytest.raises(StorageFault):
        log.write_staged()
    assert kit.name(0, ".log").stat().st_size == log.size + 30
    disk.room, disk.stuck = None, False
    kit.values(log, b"c")
    assert read_all(log) == [(0, b"a"), (1, b"c")]
    assert kit.name(0, ".log").stat().st_size == log.size


def test_a_transaction_that_could_not_be_indexed_is_not_ended(tmp_path: Path, disk: FailingDisk) -> None:
    kit = Kit(tmp_path, disk)
    log = kit.open()
    kit.append(log, batch(b"a", producer_id=9, epoch=0, sequence=0, transactional=True))
    log.advance_high_watermark(1)
    disk.room, disk.only = 10, ".txnindex"
    with pytest.raises(StorageFault):
        kit.marker(log, 9, 0, commit=False)
    assert (log.log_end_offset, log.last_stable_offset) == (1, 0)
    disk.room = None
    kit.marker(log, 9, 0, commit=False)
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 2
    assert [txn.producer_id for txn in log.aborted_transactions(0, 2)] == [9]
    assert kit.name(0, ".txnindex").stat().st_size == 34


def test_a_roll_that_fails_leaves_no_file_behind(tmp_path: Path, disk: FailingDisk) -> None:
    kit = Kit(tmp_path, disk, segment_bytes=500)
    log = kit.open()
    kit.values(log, b"x" * 120)
    kit.values(log, b"x" * 120)
    disk.stuck = True
    with pytest.raises(StorageFault):
        kit.values(log, b"x" * 150)
    disk.stuck = False
    assert not kit.name(2, ".log").exists()
    kit.values(log, b"x")
    assert kit.values(log, b"x" * 150).rolled
    log.close(flush=False)
    assert [offset for offset, _ in read_all(kit.open())] == [0, 1, 2, 3]


def test_what_a_failing_roll_undoes_is_told_to_those_who_had_staged_it(tmp_path: Path, disk: FailingDisk) -> None:
    kit = Kit(tmp_path, disk, segment_bytes=500)
    log = kit.open()
    kit.values(log, b"a")
    kit.stage(log, batch(b"b" * 150))
    kit.stage(log, batch(b"b" * 100))
    disk.room, disk.only = 100, ".log"
    with pytest.raises(StorageFault):
        kit.stage(log, batch(b"c" * 150))
    disk.room = None
    kit.stage(log, batch(b"d"))
    with pytest.raises(StorageFault, match="No space left"):
        log.write_staged()
    assert read_all(log) == [(0, b"a")]
    assert kit.values(log, b"e").first_offset == 1
    assert read_all(log) == [(0, b"a"), (1, b"e")]


def test_a_leader_begins_on_a_full_disk_and_saves_its_epoch_with_the_first_record(
    tmp_path: Path, disk: FailingDisk
) -> None:
    kit = Kit(tmp_path, disk)
    log = kit.open()
    kit.values(log, b"a", leader_epoch=1)
    saved = (kit.path / "leader-epoch-checkpoint").read_bytes()
    disk.stuck = True
    log.begin_leader_epoch(2)
    assert log.leader_epochs.latest == 2
    assert (kit.path / "leader-epoch-checkpoint").read_bytes() == saved
    disk.stuck = False
    kit.values(log, b"b", leader_epoch=2)
    log.close(flush=False)
    assert kit.open().leader_epochs.entries == [(1, 0), (2, 1)]


def test_what_is_staged_when_a_leader_begins_belongs_to_the_epoch_before(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    log = kit.open()
    kit.values(log, b"a", leader_epoch=1)
    kit.stage(log, batch(b"b"), leader_epoch=1)
    log.begin_leader_epoch(2)
    assert log.log_end_offset == 2
    assert log.write_staged() > 0, "its round still accounts for it"
    kit.values(log, b"c", leader_epoch=2)
    assert log.leader_epochs.entries == [(1, 0), (2, 2)]
    assert read_all(log) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_a_failed_sync_is_no_full_disk(tmp_path: Path, disk: FailingDisk) -> None:
    kit = Kit(tmp_path, disk)
    log = kit.open()
    kit.values(log, b"a")
    disk.unsyncable = True
    with pytest.raises(StorageFault, match="while syncing") as failure:
        log.sync_to(1)
    assert not is_disk_full(failure.value)
    assert log.recovery_point == 0


def test_an_old_format_is_stored_without_epochs_and_read_back(tmp_path: Path) -> None:
    kit = Kit(tmp_path, message_format_version="0.10.2")
    log = kit.open()
    log.settle_leader_epochs()
    log.begin_leader_epoch(3)
    info = kit.values(log, b"a", b"b", leader_epoch=3)
    assert (info.first_offset, info.last_offset, info.count, info.converted) == (0, 1, 2, True)
    kit.append(log, build_batch([Record(timestamp=START_MS, value=b"c")] * 3, codec=1), 3)
    data = kit.name(0, ".log").read_bytes()
    assert [(header.magic, header.last_offset) for header in iterate_headers(data, 0, len(data))] == [
        (1, 0), (1, 1), (1, 4),
    ]  # fmt: skip
    assert [offset for offset, _ in read_all(log)] == [0, 1, 2, 3, 4]
    assert log.leader_epochs.entries == []
    assert log.end_offset_for_epoch(3) is None


def test_a_segment_that_begins_with_a_wrapper_has_its_first_offset_as_its_name(tmp_path: Path) -> None:
    for follows in (False, True):
        kit = Kit(tmp_path / str(follows), message_format_version="0.10.2", segment_bytes=200)
        log = kit.open()
        for number in range(4):
            records = [Record(timestamp=START_MS, value=b"%d" % number * 30)] * 3
            if follows:
                wrapper = build_message_set(records, magic=1, codec=1, base_offset=3 * number)
                log.append_as_follower(as_slice(wrapper), now_ms=START_MS)
                log.write_staged()
            else:
                kit.append(log, build_batch(records, codec=1))
        assert len(log.segments) > 1
        assert all(segment.base_offset % 3 == 0 for segment in log.segments)
        assert [offset for offset, _ in read_all(log)] == list(range(12))


def test_epochs_are_forgotten_with_the_first_message_of_an_old_format(tmp_path: Path) -> None:
    """Also in a follower that has not heard of the topic's setting yet; and kept again with the next batch."""
    kit = Kit(tmp_path)
    log = kit.open()
    kit.values(log, b"a", leader_epoch=3)
    message = build_message_set([Record(timestamp=START_MS, value=b"b")], magic=1, base_offset=1)
    log.append_as_follower(as_slice(message), now_ms=START_MS)
    assert log.leader_epochs.entries == []
    log.truncate_to(1)
    assert log.leader_epochs.entries == [(3, 0)]
    log.append_as_follower(as_slice(message), now_ms=START_MS)
    log.write_staged()
    assert (tmp_path / f"{PARTITION}" / "leader-epoch-checkpoint").read_bytes() == b"0\n0\n"
    kit.values(log, b"c", leader_epoch=4)
    assert log.leader_epochs.entries == [(4, 2)]
