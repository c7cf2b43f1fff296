from __future__ import annotations

import pytest

from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
    KafkaStorageError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RequestTimedOutError,
    UnknownLeaderEpochError,
)
from braidlog.replication.partition import ACKS_ALL, READ_UNCOMMITTED, Partition, ReplicationContext
from braidlog.replication.pending_ack import PendingAck
from braidlog.wire.records.validation import ORIGIN_CLIENT
from support.partitions import Waiter, batch


def test_min_insync_replicas_binds_acks_all_only(partition: Partition) -> None:
    partition.update_leader_and_isr(1, 3, (1,), (1, 2))
    with pytest.raises(NotEnoughReplicasError, match=r"1 in-sync replica.*min\.insync\.replicas is 2"):
        partition.append(batch(), ACKS_ALL, 9, 1_700_000_000_000, ORIGIN_CLIENT)
    assert partition.append(batch(), 1, 9, 1_700_000_000_000, ORIGIN_CLIENT).first_offset == 0


def test_no_more_copies_are_asked_for_than_there_are_replicas(partition: Partition) -> None:
    assert partition.append(batch(), ACKS_ALL, 9, 1_700_000_000_000, ORIGIN_CLIENT).first_offset == 0


def test_readers_see_what_is_safe_and_nothing_else(partition: Partition) -> None:
    log = partition.require_log()
    partition.append(batch(), 1, 9, 1_700_000_000_000, ORIGIN_CLIENT)
    size = log.write_staged()
    assert partition.read(0, 1000, READ_UNCOMMITTED, True).slice is None
    partition.advance_high_watermark(1, size)
    read = partition.read(0, 1000, READ_UNCOMMITTED, True).slice
    assert read is not None
    assert read.size == size


@pytest.mark.parametrize(("claimed", "error"), [(2, FencedLeaderEpochError), (4, UnknownLeaderEpochError)])
def test_a_wrong_leader_epoch_is_refused(partition: Partition, claimed: int, error: type[Exception]) -> None:
    with pytest.raises(error):
        partition.check_epoch(claimed)
    partition.check_epoch(3)
    partition.check_epoch(-1)


def test_nothing_is_written_in_a_leader_epoch_that_a_crash_would_forget(partition: Partition) -> None:
    partition.epoch_unwritten = True
    with pytest.raises(KafkaStorageError, match="free some space"):
        partition.append(batch(), 1, 9, 0, ORIGIN_CLIENT)
    assert partition.read(0, 1000, READ_UNCOMMITTED, True).slice is None
    partition.epoch_unwritten = False
    partition.append(batch(), 1, 9, 0, ORIGIN_CLIENT)


def test_who_does_not_lead_or_lost_its_disk_says_so(partition: Partition) -> None:
    log, partition.log = partition.log, None
    with pytest.raises(KafkaStorageError):
        partition.require_log()
    partition.log = log
    partition.update_leader_and_isr(2, 4, (2,), (1, 2))
    with pytest.raises(NotLeaderOrFollowerError):
        partition.require_log()


def test_a_new_role_wakes_those_who_wait(partition: Partition) -> None:
    waiter = Waiter(100)
    waiter.watch(partition)
    partition.update_leader_and_isr(2, 4, (2,), (1, 2))
    assert waiter.wakes == 1
    assert partition.readers == []


def test_a_role_that_ends_leaves_the_log(partition: Partition) -> None:
    waiter = Waiter(1)
    waiter.watch(partition)
    partition.stop()
    assert waiter.wakes == 1
    assert partition.log is not None
    with pytest.raises(NotLeaderOrFollowerError):
        partition.require_log()


class Ack(PendingAck):
    """The answer to a request with one append."""

    def __init__(self) -> None:
        super().__init__()
        self.outstanding = 0
        self.answers: list[list[type[ProtocolError]]] = []

    def on_durable(self) -> None:
        self.answers.append([type(each) for each in self.failures.values()])


class Led:
    """A partition that this broker, 1, leads in epoch 4, with the replicas 2 and 3."""

    def __init__(self, partition: Partition, isr: tuple[int, ...] = (1, 2, 3)) -> None:
        self.clock = ManualClock()
        self.live = {1, 2, 3}
        self.proposals: list[tuple[int, ...] | None] = []
        self.partition = partition
        partition.context = ReplicationContext(self.clock, 10.0, lambda broker: broker in self.live, self.propose)
        partition.update_leader_and_isr(1, 4, isr, (1, 2, 3), 7)

    def propose(self, partition: Partition) -> None:
        assert partition.progress is not None
        self.proposals.append(partition.progress.proposed)

    def append(self, *, acks: int = ACKS_ALL) -> Ack:
        ack = Ack()
        info = self.partition.append(batch(), acks, 9, 1_700_000_000_000, ORIGIN_CLIENT)
        if acks == ACKS_ALL:
            self.partition.wait_for_commit(info.last_offset + 1, ack)
        log = self.partition.require_log()
        size = log.write_staged()
        self.partition.advance_high_watermark(log.log_end_offset, size)
        return ack

    def fetch(self, broker: int, offset: int, *, broker_epoch: int = -1, log_start: int = 0) -> None:
        replica = self.partition.remote_replica(broker, 4)
        self.partition.follower_fetched(
            replica, offset, log_start, broker_epoch, self.partition.context.clock.monotonic()
        )

    @property
    def high_watermark(self) -> int:
        return self.partition.require_log().high_watermark


def test_what_every_in_sync_replica_has_is_committed_and_answered(partition: Partition) -> None:
    led = Led(partition)
    first, second = led.append(), led.append()
    waiter = Waiter(1)
    waiter.watch(partition)
    led.fetch(2, 2)
    assert (led.high_watermark, first.answers, waiter.wakes) == (0, [], 0)
    led.fetch(3, 1)
    assert (led.high_watermark, first.answers, second.answers, waiter.wakes) == (1, [[]], [], 1)
    led.fetch(3, 2)
    assert (led.high_watermark, second.answers) == (2, [[]])


def test_a_leader_begins_where_it_was_and_forgets_what_it_knew(partition: Partition) -> None:
    led = Led(partition)
    led.append()
    led.fetch(2, 1)
    partition.update_leader_and_isr(1, 5, (1, 2, 3), (1, 2, 3))
    led.fetch(3, 1)
    assert led.high_watermark == 0, "2 has not said anything in this epoch"
    led.fetch(2, 1)
    assert led.high_watermark == 1
    assert partition.require_log().leader_epochs.latest == 5


def test_a_leader_without_other_replicas_commits_all_it_has(partition: Partition) -> None:
    log = partition.require_log()
    partition.append(batch(), 1, 9, 1_700_000_000_000, ORIGIN_CLIENT)
    log.write_staged()
    partition.update_leader_and_isr(2, 4, (2,), (1, 2))
    assert log.high_watermark == 0
    partition.update_leader_and_isr(1, 5, (1,), (1,))
    assert log.high_watermark == 1


def test_a_repeated_append_waits_for_its_own_offset(partition: Partition) -> None:
    led = Led(partition)
    led.append()
    led.append()
    repeated = Ack()
    partition.wait_for_commit(1, repeated)
    led.fetch(2, 1)
    led.fetch(3, 1)
    assert repeated.answers == [[]]
    assert [wait.offset for wait in partition.waits] == [2]
    committed = Ack()
    partition.wait_for_commit(1, committed)
    assert committed.outstanding == 0


def test_lost_leadership_refuses_who_waits(partition: Partition) -> None:
    led = Led(partition)
    ack = led.append()
    partition.update_leader_and_isr(2, 5, (2, 3), (1, 2, 3))
    assert ack.answers == [[NotLeaderOrFollowerError]]
    assert not partition.waits
    assert partition.progress is None


def test_a_lost_log_refuses_who_waits(partition: Partition) -> None:
    led = Led(partition)
    log = partition.require_log()
    ack = led.append()
    partition.lose_log()
    assert ack.answers == [[KafkaStorageError]]
    with pytest.raises(KafkaStorageError):
        partition.require_log()
    partition.log = log


def test_a_failed_write_refuses_what_is_not_in_the_log(partition: Partition) -> None:
    led = Led(partition)
    written, lost = led.append(), Ack()
    partition.append(batch(), ACKS_ALL, 9, 1_700_000_000_000, ORIGIN_CLIENT)
    partition.wait_for_commit(2, lost)
    partition.on_write_failed(KafkaStorageError("no disk"))
    assert (written.answers, lost.answers) == ([], [[KafkaStorageError]])


def test_who_is_answered_late_is_forgotten(partition: Partition) -> None:
    led = Led(partition)
    ack = led.append()
    partition.waits[0].finish(RequestTimedOutError())
    partition.forget_ended_waits()
    assert ack.answers == [[RequestTimedOutError]]
    assert not partition.waits


def test_an_isr_that_shrank_below_the_minimum_is_told_after_the_append(partition: Partition) -> None:
    """min.insync.replicas is 2: committed while two were in sync, answered when one was."""
    led = Led(partition, (1, 2))
    ack = led.append()
    progress = partition.progress
    assert progress is not None
    # As if the high watermark had passed the append in the moment in which the ISR shrank.
    progress.commit((1,))
    partition.require_log().advance_high_watermark(1)
    progress.isr = (1, 2)
    led.append()
    led.fetch(2, 2)
    assert ack.answers == [[NotEnoughReplicasAfterAppendError]]


def test_the_high_watermark_stands_still_below_the_minimum_also_for_acks_1(partition: Partition) -> None:
    led = Led(partition, (1,))
    led.append(acks=1)
    assert led.high_watermark == 0
    led.fetch(2, 1)
    assert led.proposals == [(1, 2)]
    partition.commit_isr((1, 2), 8)
    assert (led.high_watermark, partition.isr, partition.partition_epoch) == (1, (1, 2), 8)


def test_a_proposal_that_came_to_nothing_lets_the_high_watermark_go_on(partition: Partition) -> None:
    led = Led(partition, (1, 2))
    led.append()
    led.fetch(3, 0)
    assert led.proposals == [(1, 2, 3)]
    led.clock.advance(20)
    led.fetch(2, 1)
    assert led.high_watermark == 0, "3 may be in the ISR"
    partition.withdraw_isr()
    assert led.high_watermark == 1


def test_a_broker_that_is_not_alive_does_not_join(partition: Partition) -> None:
    led = Led(partition, (1, 2))
    led.live = {1, 2}
    led.fetch(3, 0)
    assert led.proposals == []


def test_who_lags_leaves_the_isr(partition: Partition) -> None:
    led = Led(partition)
    led.append()
    led.fetch(2, 1)
    led.clock.advance(10)
    partition.check_isr()
    assert led.proposals == []
    led.clock.advance(0.1)
    partition.check_isr()
    partition.check_isr()
    assert led.proposals == [(1, 2)]


def test_only_replicas_may_fetch_as_such(partition: Partition) -> None:
    led = Led(partition)
    with pytest.raises(UnknownLeaderEpochError):
        led.fetch(9, 0)
    with pytest.raises(NotLeaderOrFollowerError):
        partition.remote_replica(9, -1)
    partition.update_leader_and_isr(1, 5, (1,), (1,))
    with pytest.raises(UnknownLeaderEpochError):
        partition.remote_replica(2, 5)


def test_an_earlier_registration_of_a_broker_moves_nothing(partition: Partition) -> None:
    led = Led(partition)
    led.append()
    led.fetch(3, 1)
    led.fetch(2, 0, broker_epoch=12)
    with pytest.raises(NotLeaderOrFollowerError):
        led.fetch(2, 1, broker_epoch=11)
    assert led.high_watermark == 0
    led.fetch(2, 1, broker_epoch=12)
    assert led.high_watermark == 1


def test_followers_copy_to_the_end(partition: Partition) -> None:
    led = Led(partition)
    led.append()
    assert partition.read(0, 1000, READ_UNCOMMITTED, True).slice is None
    assert partition.require_log().read(0, 1000, 1000).slice is not None
