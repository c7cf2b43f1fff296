from __future__ import annotations

import pytest

from braidlog.cluster.image import PartitionInfo, no_leader
from braidlog.controller.partitions import LEGAL_MOVES, PartitionState, repaired, state_of, states_plan, told
from braidlog.controller.plan import ControllerContext, Plan
from braidlog.controller.replicas import IllegalMoveError
from braidlog.core.types import NO_BROKER, BrokerId, TopicPartition
from support.controller_harness import context, ids, partition, topic

WHERE = TopicPartition("t", 0)
TWO = {1: None, 2: None}


def repair(start: ControllerContext, before: PartitionInfo) -> PartitionInfo:
    return repaired(start, WHERE, before, frozenset(start.image.brokers))


def test_every_state_can_be_reached_and_left() -> None:
    assert set(LEGAL_MOVES) == set(PartitionState)
    assert set().union(*LEGAL_MOVES.values()) == set(PartitionState)


def test_states_follow_from_the_leader() -> None:
    start = context(brokers=TWO)
    assert state_of(start, WHERE, None) is PartitionState.NON_EXISTENT
    assert state_of(start, WHERE, no_leader(ids(1))) is PartitionState.NEW
    assert state_of(start, WHERE, partition(1, (1,), (1,))) is PartitionState.ONLINE
    assert state_of(start, WHERE, partition(9, (9,), (9,))) is PartitionState.OFFLINE
    broken = start._replace(offline_dirs={BrokerId(1): frozenset({WHERE})})
    assert state_of(broken, WHERE, partition(1, (1,), (1,))) is PartitionState.OFFLINE


@pytest.mark.parametrize(
    ("before", "leader", "isr"),
    [
        (partition(1, (1, 2), (1, 2)), 1, (1, 2)),
        (partition(1, (1, 9), (1, 9)), 1, (1,)),
        (partition(9, (9, 2), (9, 1, 2)), 2, (2,)),
        (partition(9, (9, 8), (9, 8, 1)), NO_BROKER, (9, 8)),
        (partition(-1, (2,), (9, 2)), 2, (2,)),
    ],
)
def test_a_live_leader_and_a_live_isr(before: PartitionInfo, leader: int, isr: tuple[int, ...]) -> None:
    after = repair(context(brokers=TWO), before)
    assert (after.leader, after.isr) == (leader, isr)
    changed = (leader, isr) != (before.leader, before.isr)
    assert after.leader_epoch == before.leader_epoch + changed
    assert (after is not before) == changed


def test_a_replica_out_of_sync_leads_only_where_that_is_allowed() -> None:
    before = partition(9, (9,), (9, 2))
    assert repair(context(brokers=TWO), before).leader == NO_BROKER
    allowed = context(brokers=TWO, configs={"topics/t": {"unclean.leader.election.enable": "true"}})
    after = repair(allowed, before)
    assert (after.leader, after.isr, after.leader_recovery_state) == (2, (2,), 1)
    everywhere = context(brokers=TWO, settings={"unclean.leader.election.enable": "true"})
    assert repair(everywhere, before).leader == 2
    assert repair(everywhere._replace(shutting_down=frozenset(ids(2))), before).leader == NO_BROKER


def test_a_partition_without_a_state_starts_once_a_replica_is_alive() -> None:
    start = context(brokers=TWO)
    nowhere = no_leader(ids(8, 9))
    assert repair(start, nowhere) is nowhere
    after = repair(start, no_leader(ids(9, 2)))
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (2, (2,), 0, 0)


def test_replicas_that_are_being_added_are_new_until_they_are_in_sync() -> None:
    start = context(brokers={1: None, 2: None, 3: None})
    role = told(start, WHERE, partition(1, (1, 2), (2, 3, 1), adding=ids(2, 3)))
    assert (role.brokers, role.new) == (ids(2, 3, 1), ids(3))
    assert told(start, WHERE, partition(1, (1,), (1, 9))).brokers == ids(1)


def test_a_state_without_a_new_leader_epoch_is_a_bug() -> None:
    start = context(topic("t", partition(1, (1, 2), (1, 2))), brokers=TWO)
    assert states_plan(start, {}) == Plan()
    with pytest.raises(IllegalMoveError, match="t-0"):
        states_plan(start, {"t": {0: partition(2, (1, 2), (1, 2))}})
