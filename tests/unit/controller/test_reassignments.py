from __future__ import annotations

import pytest

from braidlog.cluster.image import PartitionInfo
from braidlog.controller.plan import ControllerContext, Plan, RequestBatch, RoleChange, Stop
from braidlog.controller.reassignments import alter_reassignments, complete, list_reassignments
from braidlog.controller.requests import OngoingReassignment, Reassignment
from braidlog.core import protocol_errors as errors
from braidlog.core.types import BrokerId, TopicPartition
from support.controller_harness import context, ids, partition, topic

T0 = TopicPartition("t", 0)
THREE = {1: None, 2: None, 3: None}


def move(start: ControllerContext, replicas: tuple[int, ...] | None) -> tuple[Plan, object]:
    plan, (result,) = alter_reassignments(start, [Reassignment(T0, replicas)])
    return plan, type(result.error)


def after(plan: Plan) -> PartitionInfo:
    return plan.delta.topics_changed[0][1].partitions[0]


def test_one_broker_has_nowhere_to_move() -> None:
    start = context(topic("t"))
    plan, error = move(start, (1,))
    assert error is type(None)
    assert plan.delta.empty
    assert move(start, None)[1] is errors.NoReassignmentInProgressError
    assert move(start, (2,))[1] is errors.InvalidReplicaAssignmentError
    assert move(start, (1, 1))[1] is errors.InvalidReplicaAssignmentError
    assert move(start, ())[1] is errors.InvalidReplicaAssignmentError
    assert list_reassignments(start.image, None) == []


@pytest.mark.parametrize("where", [TopicPartition("no", 0), TopicPartition("t", 3)])
def test_unknown_partitions(where: TopicPartition) -> None:
    _, (result,) = alter_reassignments(context(topic("t")), [Reassignment(where, (1,))])
    assert isinstance(result.error, errors.UnknownTopicOrPartitionError)


def test_a_move_starts_with_both_sets_and_is_listed() -> None:
    start = context(topic("t", partition(1, (1,), (1,))), brokers=THREE)
    plan, error = move(start, (2, 3))
    assert error is type(None)
    now = after(plan)
    assert (now.replicas, now.adding, now.removing) == (ids(2, 3, 1), ids(2, 3), ids(1))
    assert (now.leader, now.leader_epoch, now.partition_epoch) == (1, 1, 1)
    assert [step.path for step in plan.steps] == ["/brokers/topics/t", "/brokers/topics/t/partitions/0/state"]
    assert plan.requests == (RequestBatch([RoleChange(T0, ids(2, 3, 1), new=ids(2, 3))], stops=[]),)
    image = start.image.apply(plan.delta)
    expected = [OngoingReassignment(T0, ids(2, 3, 1), ids(2, 3), ids(1))]
    assert list_reassignments(image, None) == expected
    assert list_reassignments(image, [T0, T0]) == expected
    assert list_reassignments(image, [TopicPartition("t", 9), TopicPartition("no", 0)]) == []


def test_a_cancelled_move_is_as_if_it_had_not_been() -> None:
    moving = partition(1, (1,), (2, 3, 1), adding=ids(2, 3), removing=ids(1))
    plan, error = move(context(topic("t", moving), brokers=THREE), None)
    assert error is type(None)
    assert (after(plan).replicas, after(plan).adding, after(plan).removing) == (ids(1), (), ())


def test_a_move_whose_origin_is_gone_cannot_be_cancelled() -> None:
    moving = partition(2, (2,), (2, 1), adding=ids(2), removing=ids(1))
    _, error = move(context(topic("t", moving), brokers=THREE), None)
    assert error is errors.InvalidReplicaAssignmentError


def test_dropping_a_replica_finishes_at_once_and_a_remaining_one_leads() -> None:
    start = context(topic("t", partition(1, (1, 2), (1, 2), epoch=4)), brokers=THREE)
    plan, _ = move(start, (2,))
    now = after(plan)
    assert (now.replicas, now.isr, now.leader, now.leader_epoch) == (ids(2), ids(2), 2, 5)
    assert not now.reassigning
    assert [step.path for step in plan.steps] == ["/brokers/topics/t/partitions/0/state", "/brokers/topics/t"]
    stops = [Stop(BrokerId(1), T0, delete=False), Stop(BrokerId(1), T0, delete=True)]
    assert plan.requests == (RequestBatch([RoleChange(T0, ids(2))], stops=stops),)


def test_a_move_is_complete_once_every_target_is_in_sync() -> None:
    moving = partition(1, (1, 2), (2, 3, 1), adding=ids(2, 3), removing=ids(1))
    start = context(topic("t", moving), brokers=THREE)
    assert complete(start, [T0, TopicPartition("gone", 0)]) == Plan()
    plan = complete(context(topic("t", moving._replace(isr=ids(1, 2, 3))), brokers=THREE), [T0])
    now = after(plan)
    assert (now.replicas, now.isr, now.leader, now.leader_epoch) == (ids(2, 3), ids(2, 3), 2, 1)
    assert not now.reassigning
    assert [(stop.broker, stop.delete) for stop in plan.requests[0].stops] == [(1, False), (1, True)]


def test_a_move_waits_also_for_a_remaining_replica_that_is_not_in_sync() -> None:
    start = context(topic("t", partition(1, (1,), (1, 2))), brokers=THREE)
    plan, _ = move(start, (2,))
    assert (after(plan).replicas, after(plan).removing) == (ids(2, 1), ids(1))


def test_reordering_raises_the_leader_epoch_as_brokers_are_told_the_new_order() -> None:
    start = context(topic("t", partition(1, (1, 2), (1, 2))), brokers=THREE)
    plan, _ = move(start, (2, 1))
    assert (after(plan).replicas, after(plan).leader, after(plan).leader_epoch) == (ids(2, 1), 1, 1)


def test_a_new_target_replaces_the_one_under_way() -> None:
    moving = partition(1, (1,), (2, 1), adding=ids(2), removing=ids(1))
    plan, _ = move(context(topic("t", moving), brokers=THREE), (3,))
    assert (after(plan).replicas, after(plan).adding, after(plan).removing) == (ids(3, 1), ids(3), ids(1))
