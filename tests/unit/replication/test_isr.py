from __future__ import annotations

import pytest

from braidlog.cluster.image import PartitionInfo
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import (
    FencedLeaderEpochError,
    IneligibleReplicaError,
    InvalidUpdateVersionError,
    OperationNotAttemptedError,
    ProtocolError,
    UnknownServerError,
)
from braidlog.core.types import BrokerId, LeaderEpoch, TopicPartition
from braidlog.replication.isr import IsrChangePropagation, IsrProposal, IsrProposals
from braidlog.replication.partition import Partition, ReplicationContext
from braidlog.replication.progress import ReplicaProgress

T0, T1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class World:
    """Broker 1 leads with 2 in sync, and 3 has caught up."""

    def __init__(self, partition: Partition) -> None:
        self.proposals = IsrProposals()
        self.partition = partition
        partition.context = ReplicationContext(ManualClock(), 10.0, propose_isr=self.proposals.add)
        partition.update_leader_and_isr(1, 4, (1, 2), (1, 2, 3), 7)
        partition.follower_fetched(partition.remote_replica(2, 4), 0, 0, -1, partition.context.clock.monotonic())
        partition.follower_fetched(partition.remote_replica(3, 4), 0, 0, 33, partition.context.clock.monotonic())

    @property
    def progress(self) -> ReplicaProgress:
        assert self.partition.progress is not None
        return self.partition.progress

    def take(self) -> IsrProposal:
        (taken,) = self.proposals.take(10)
        return taken


@pytest.fixture
def world(partition: Partition) -> World:
    return World(partition)


def stored(isr: tuple[int, ...], partition_epoch: int, leader_epoch: int = 4) -> PartitionInfo:
    return PartitionInfo(
        BrokerId(1),
        LeaderEpoch(leader_epoch),
        tuple(BrokerId(each) for each in isr),
        (),
        partition_epoch=partition_epoch,
    )


def test_a_proposal_names_the_epochs_that_make_it_safe(world: World) -> None:
    taken = world.take()
    assert (taken.leader_epoch, taken.partition_epoch) == (4, 7)
    assert taken.isr == ((1, -1), (2, -1), (3, 33))
    assert len(world.proposals) == 0


def test_what_is_stored_counts(world: World) -> None:
    world.proposals.stored(world.take(), stored((1, 2, 3), 8))
    assert (world.partition.isr, world.partition.partition_epoch) == ((1, 2, 3), 8)
    assert world.progress.proposed is None
    world.progress.propose((1, 2))
    world.proposals.add(world.partition)
    world.proposals.stored(world.take(), stored((1, 2), 9))
    assert (world.partition.context.isr_expands, world.partition.context.isr_shrinks) == (1, 1)


@pytest.mark.parametrize("error", [IneligibleReplicaError, OperationNotAttemptedError])
def test_what_is_certainly_not_stored_is_taken_back(world: World, error: type[ProtocolError]) -> None:
    assert not world.proposals.refused(world.take(), error(), None)
    assert (world.progress.proposed, world.progress.maximal_isr) == (None, (1, 2))


def test_without_an_answer_the_same_is_proposed_again(world: World) -> None:
    first = world.take()
    world.proposals.unanswered(first)
    assert world.take() == first
    assert world.progress.maximal_isr == (1, 2, 3)
    assert world.proposals.refused(first, UnknownServerError(), None)
    assert world.take() == first
    assert world.partition.context.failed_isr_updates == 2


def test_who_leads_no_more_waits_for_the_next_role(world: World) -> None:
    assert not world.proposals.refused(world.take(), FencedLeaderEpochError(), None)
    assert (len(world.proposals), world.progress.maximal_isr) == (0, (1, 2, 3))


def test_another_stored_state_is_taken_once_it_is_known(world: World) -> None:
    first = world.take()
    assert world.proposals.refused(first, InvalidUpdateVersionError(), stored((1, 2), 7))
    assert world.proposals.refused(world.take(), InvalidUpdateVersionError(), stored((1,), 9, leader_epoch=5))
    assert not world.proposals.refused(world.take(), InvalidUpdateVersionError(), stored((1, 3), 9))
    assert (world.partition.isr, world.partition.partition_epoch) == ((1, 3), 9)


def test_a_new_leader_epoch_ends_what_is_under_way(world: World) -> None:
    first = world.take()
    world.partition.update_leader_and_isr(1, 5, (1, 2), (1, 2, 3), 8)
    world.proposals.stored(first, stored((1, 2, 3), 8))
    assert not world.proposals.refused(first, IneligibleReplicaError(), None)
    world.proposals.unanswered(first)
    assert (world.partition.isr, len(world.proposals)) == ((1, 2), 0)
    world.proposals.add(world.partition)
    assert world.proposals.take(10) == []


def test_one_change_follows_the_other_without_another_fetch(world: World) -> None:
    """Two replicas are back, and nothing is appended that they would fetch."""
    world.partition.update_leader_and_isr(1, 5, (1,), (1, 2, 3), 8)
    for broker in (2, 3):
        partition = world.partition
        partition.follower_fetched(partition.remote_replica(broker, 5), 0, 0, -1, partition.context.clock.monotonic())
    assert [each for each, _ in world.take().isr] == [1, 2]
    world.partition.commit_isr((1, 2), 9)
    assert [each for each, _ in world.take().isr] == [1, 2, 3]


def test_an_older_controller_is_told_after_five_quiet_seconds() -> None:
    propagation = IsrChangePropagation(100.0)
    assert not propagation.is_due(200.0)
    propagation.changed(T0, 101.0)
    propagation.changed(T1, 104.0)
    propagation.changed(T0, 104.0)
    assert not propagation.is_due(109.0)
    assert propagation.is_due(109.1)
    assert list(propagation.pending) == [T0, T1]
    propagation.told([T0], 109.1)
    assert list(propagation.pending) == [T1]


def test_an_older_controller_is_told_a_minute_after_the_last_time() -> None:
    propagation = IsrChangePropagation(100.0)
    for second in range(101, 161):
        propagation.changed(T0, second)
        assert not propagation.is_due(second)
    assert propagation.is_due(160.1)
    propagation.told([T0], 160.1)
    propagation.changed(T0, 160.2)
    assert not propagation.is_due(165.0)
