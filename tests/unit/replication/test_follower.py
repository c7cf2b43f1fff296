from __future__ import annotations

import logging
from pathlib import Path

import pytest

from braidlog.core.protocol_errors import CorruptMessageError
from braidlog.replication.follower import PartitionFetchState
from braidlog.replication.partition import Partition
from braidlog.replication.topic_metrics import TopicMetrics
from braidlog.storage.log.unified_log import UnifiedLog
from support.log_kit import START_MS, Kit, as_slice, batch
from support.partitions import Waiter

ME, LEADER = 1, 2
EPOCH = 5


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


def followed(log: UnifiedLog, *, unclean: bool = False) -> PartitionFetchState:
    partition = Partition("orders", 0, b"i" * 16, ME, TopicMetrics())
    partition.log = log
    partition.update_leader_and_isr(LEADER, EPOCH, (LEADER, ME), (LEADER, ME))
    return PartitionFetchState(partition, unclean=unclean)


def filled(kit: Kit, *epochs: int) -> UnifiedLog:
    """One record in each of these leader epochs."""
    log = kit.open()
    for epoch in epochs:
        kit.values(log, b"v", leader_epoch=epoch)
    return log


def from_leader(offset: int, *values: bytes, leader_epoch: int = EPOCH) -> bytes:
    return batch(*values, base_offset=offset, leader_epoch=leader_epoch)


def test_what_the_leader_sends_is_taken_as_it_is(kit: Kit) -> None:
    state = followed(kit.open())
    data = from_leader(0, b"a", b"b", leader_epoch=3) + from_leader(2, b"c")
    appended = state.append(as_slice(data), leader_high_watermark=2, leader_log_start=0, now_ms=START_MS)
    assert (appended.size, appended.moved) == (len(data), True)
    log = state.log
    assert (log.log_end_offset, log.high_watermark) == (3, 2)
    assert log.leader_epochs.entries == [(3, 0), (EPOCH, 2)]
    assert state.position() == (3, EPOCH, 0)
    found = log.read(0, 10_000, 3).slice
    assert found is not None
    assert found.read() == data


def test_a_last_batch_that_is_cut_off_is_left_for_the_next_answer(kit: Kit) -> None:
    state = followed(kit.open())
    whole, cut = from_leader(0, b"a"), from_leader(1, b"b")[:-1]
    assert state.append(as_slice(whole + cut), 0, 0, START_MS).size == len(whole)
    for end in (5, 40, len(cut)):
        appended = state.append(as_slice(cut[:end]), 0, 0, START_MS)
        assert (appended.size, appended.moved, state.log.log_end_offset) == (0, False, 1)


def test_damaged_records_are_refused(kit: Kit) -> None:
    state = followed(kit.open())
    data = bytearray(from_leader(0, b"value"))
    data[-2] ^= 1
    with pytest.raises(CorruptMessageError, match="corrupt"):
        state.append(as_slice(bytes(data)), 0, 0, START_MS)
    assert state.log.log_end_offset == 0


def test_an_answer_to_an_older_question_does_not_fit(kit: Kit) -> None:
    state = followed(kit.open())
    state.asked_offset = 0
    records = as_slice(from_leader(0, b"a"))
    assert state.is_answered_by(records)
    state.append(records, 0, 0, START_MS)
    assert not state.is_answered_by(records)
    assert state.is_answered_by(None)


def test_the_high_watermark_follows_the_leaders_and_never_goes_back(kit: Kit) -> None:
    state = followed(filled(kit, 1, 1, 1))
    reader = Waiter(100)
    reader.watch(state.partition)
    for leaders, own in ((2, 2), (1, 2), (50, 3)):
        state.append(None, leaders, 0, START_MS)
        assert state.log.high_watermark == own
    assert reader.wakes == 1


def test_the_start_follows_the_leaders_as_far_as_is_committed(kit: Kit) -> None:
    state = followed(filled(kit, 1, 1, 1))
    assert state.append(None, 2, 1, START_MS).moved
    assert state.log.log_start_offset == 1
    state.append(None, 2, 3, START_MS)
    assert state.log.log_start_offset == 2
    assert not state.append(None, 2, 1, START_MS).moved


def test_a_batch_in_whose_middle_the_leaders_log_starts(kit: Kit) -> None:
    state = followed(kit.open())
    assert state.move_into(leader_start=5, leader_end=8)
    assert state.position()[0] == 5
    state.append(as_slice(from_leader(4, b"a", b"b", b"c", b"d")), 8, 5, START_MS)
    assert (state.log.log_start_offset, state.log.log_end_offset, state.log.high_watermark) == (5, 8, 8)


@pytest.mark.parametrize(
    ("epoch", "end_offset", "truncated_to", "last_epoch", "done"),
    [
        # The leader's epoch 2 ended earlier than ours.
        (2, 3, 3, 2, True),
        # It ended later: ours goes up to where our next epoch starts.
        (2, 9, 4, 2, True),
        # The leader has an epoch 3 that this log does not: go back to what is before it, and ask again.
        (3, 9, 4, 2, False),
        # Older than everything here.
        (0, 0, 0, -1, True),
    ],
)
def test_truncation_goes_to_the_last_epoch_that_both_have(
    kit: Kit, epoch: int, end_offset: int, truncated_to: int, last_epoch: int, done: bool
) -> None:
    state = followed(filled(kit, 1, 1, 2, 2, 4, 4))
    state.truncate_to_epoch_end(epoch, end_offset)
    assert state.position()[:2] == (truncated_to, last_epoch)
    assert state.is_truncating == (not done)


def test_an_epoch_without_records_goes_without_any_truncation(kit: Kit) -> None:
    log = filled(kit, 1, 1)
    log.begin_leader_epoch(4)
    state = followed(log)
    assert state.position()[1] == 4
    state.truncate_to_epoch_end(1, 7)
    assert (*state.position()[:2], log.truncation_count) == (2, 1, 0)


def test_without_epochs_only_what_is_committed_is_kept(kit: Kit) -> None:
    log = kit.open()
    state = followed(log)
    assert not state.skip_truncation()
    log.append_as_follower(as_slice(from_leader(0, b"a", leader_epoch=-1)), now_ms=START_MS)
    log.append_as_follower(as_slice(from_leader(1, b"b", leader_epoch=-1)), now_ms=START_MS)
    log.write_staged()
    log.advance_high_watermark(1)
    state.truncate_to_high_watermark()
    assert (log.log_end_offset, state.is_truncating) == (1, False)


def test_where_the_leader_does_not_know_the_end_only_what_is_committed_is_kept(kit: Kit) -> None:
    log = filled(kit, 1, 1, 2)
    log.advance_high_watermark(2)
    state = followed(log)
    state.truncate_to_epoch_end(-1, -1)
    assert (log.log_end_offset, state.is_truncating) == (2, False)


def test_a_log_outside_of_the_leaders_goes_where_that_is(kit: Kit) -> None:
    state = followed(filled(kit, 1, 1, 1))
    assert not state.move_into(leader_start=1, leader_end=9)
    assert state.move_into(leader_start=0, leader_end=2)
    assert state.position()[0] == 2
    assert state.move_into(leader_start=100, leader_end=200)
    assert state.position() == (100, -1, 100)


@pytest.mark.parametrize("unclean", [False, True])
def test_losing_committed_records_is_said_aloud(kit: Kit, caplog: pytest.LogCaptureFixture, unclean: bool) -> None:
    log = filled(kit, 1, 2, 2)
    log.advance_high_watermark(2)
    state = followed(log, unclean=unclean)
    with caplog.at_level(logging.WARNING):
        state.truncate_to_epoch_end(2, 2)
        assert not caplog.records
        assert not state.truncated_below_checkpoint
        state.truncate_to_epoch_end(1, 1)
    assert "below its high watermark 2" in caplog.text
    assert ("unclean.leader.election.enable" in caplog.text) == unclean
    assert (log.high_watermark, state.truncated_below_checkpoint) == (1, True)


def test_a_role_that_ended_is_not_followed_any_more(kit: Kit) -> None:
    state = followed(kit.open())
    partition = state.partition
    before = state.is_current
    partition.update_leader_and_isr(LEADER, EPOCH + 1, (LEADER,), (LEADER, ME))
    assert (before, state.is_current) == (True, False)
    assert PartitionFetchState(partition).is_current
    partition.update_leader_and_isr(ME, EPOCH + 2, (ME,), (LEADER, ME))
    assert not PartitionFetchState(partition).is_current
    partition.stop()
    assert not PartitionFetchState(partition).is_current
    partition.update_leader_and_isr(LEADER, EPOCH + 3, (LEADER,), (LEADER, ME))
    partition.log = None
    assert not PartitionFetchState(partition).is_current


def test_fsync_mode_asks_for_a_sync_before_the_leader_hears_of_it(tmp_path: Path) -> None:
    state = followed(Kit(tmp_path, flush_messages=2).open())
    assert not state.append(as_slice(from_leader(0, b"a")), 0, 0, START_MS).sync_is_due
    assert state.append(as_slice(from_leader(1, b"b")), 0, 0, START_MS).sync_is_due
    assert not state.append(None, 2, 0, START_MS).sync_is_due


def test_a_new_segment_is_noted(tmp_path: Path) -> None:
    state = followed(Kit(tmp_path, segment_bytes=150).open())
    assert state.append(as_slice(from_leader(0, b"a" * 60)), 0, 0, START_MS).rolled_at == -1
    assert state.append(as_slice(from_leader(1, b"b" * 60)), 0, 0, START_MS).rolled_at == 1
