from __future__ import annotations

import pytest

from braidlog.cluster.image import PartitionInfo
from braidlog.cluster.store import SetData
from braidlog.controller.elections import all_partitions, elect_leaders, imbalanced
from braidlog.controller.plan import ControllerContext, Plan
from braidlog.core import protocol_errors as errors
from braidlog.core.types import BrokerId, TopicPartition
from support.controller_harness import EPOCH, context, partition, topic

T0 = TopicPartition("t", 0)
PREFERRED, UNCLEAN = 0, 1


def elect(start: ControllerContext, kind: int = PREFERRED) -> tuple[Plan, object]:
    plan, (result,) = elect_leaders(start, kind, [T0])
    assert result.partition == T0
    return plan, type(result.error)


def after(plan: Plan) -> PartitionInfo:
    return plan.delta.topics_changed[0][1].partitions[0]


def test_the_preferred_replica_takes_the_lead() -> None:
    start = context(topic("t", partition(2, (1, 2), (1, 2), epoch=7)), brokers={1: None, 2: None})
    plan, error = elect(start)
    assert error is type(None)
    now = after(plan)
    assert (now.leader, now.leader_epoch, now.isr, now.partition_epoch) == (1, 8, (1, 2), 1)
    assert now.controller_epoch == EPOCH
    (step,) = plan.steps
    assert isinstance(step, SetData)
    assert (step.path, step.version) == ("/brokers/topics/t/partitions/0/state", 0)


@pytest.mark.parametrize(
    ("before", "kind", "error"),
    [
        (partition(1, (1,), (1,)), PREFERRED, errors.ElectionNotNeededError),
        (partition(2, (2,), (1, 2)), PREFERRED, errors.PreferredLeaderNotAvailableError),
        (partition(2, (2, 9), (9, 2)), PREFERRED, errors.PreferredLeaderNotAvailableError),
        (partition(1, (1,), (1,)), UNCLEAN, errors.ElectionNotNeededError),
        (partition(8, (8,), (8, 9)), UNCLEAN, errors.EligibleLeadersNotAvailableError),
    ],
)
def test_elections_that_do_not_happen(before: PartitionInfo, kind: int, error: type) -> None:
    plan, refused = elect(context(topic("t", before), brokers={1: None, 2: None}), kind)
    assert refused is error
    assert plan.delta.empty


def test_an_unclean_election_prefers_what_is_in_sync() -> None:
    start = context(topic("t", partition(-1, (9, 2), (1, 9, 2))), brokers={1: None, 2: None})
    plan, _ = elect(start, UNCLEAN)
    assert (after(plan).leader, after(plan).isr) == (2, (2,))
    start = context(topic("t", partition(-1, (9,), (9, 2, 1))), brokers={1: None, 2: None})
    plan, _ = elect(start, UNCLEAN)
    assert (after(plan).leader, after(plan).isr) == (2, (2,))


def test_unknown_partitions_and_types() -> None:
    start = context(topic("t"))
    _, results = elect_leaders(start, PREFERRED, [TopicPartition("no", 0), TopicPartition("t", 5)])
    assert all(isinstance(each.error, errors.UnknownTopicOrPartitionError) for each in results)
    with pytest.raises(errors.InvalidRequestError):
        elect_leaders(start, 7, [])


def test_all_partitions_answer_only_where_something_is_to_do() -> None:
    start = context(
        topic("good", partition(1, (1,), (1,))),
        topic("t", partition(2, (1, 2), (1, 2)), partition(2, (2,), (1, 2))),
        brokers={1: None, 2: None},
    )
    _, results = elect_leaders(start, PREFERRED, all_partitions(start.image), only_needed=True)
    assert [(each.partition, type(each.error)) for each in results] == [
        (T0, type(None)),
        (TopicPartition("t", 1), errors.PreferredLeaderNotAvailableError),
    ]


@pytest.mark.parametrize(("percentage", "wanted"), [("49", [T0]), ("50", [])])
def test_a_broker_that_leads_too_few_of_its_own_gets_them_back(percentage: str, wanted: list[TopicPartition]) -> None:
    partitions = (partition(2, (1, 2), (1, 2)), partition(1, (1, 2), (1, 2)), partition(2, (1, 2), (2, 1)))
    settings = {"leader.imbalance.per.broker.percentage": percentage}
    assert imbalanced(context(topic("t", *partitions), brokers={1: None, 2: None}, settings=settings)) == wanted


def test_a_preferred_replica_that_is_not_in_sync_is_left_alone() -> None:
    start = context(topic("t", partition(2, (2,), (1, 2)), partition(3, (3,), (3, 1))), brokers={1: None, 2: None})
    assert imbalanced(start) == []


def test_an_unclean_election_takes_a_replica_that_is_offline_where_there_is_no_other() -> None:
    """Its log is lost with its disk, and whoever asks accepts that."""
    offline = {BrokerId(1): frozenset({T0})}
    start = context(topic("t", partition(-1, (1,), (1, 9))), brokers={1: None, 2: None})._replace(offline_dirs=offline)
    plan, _ = elect(start, UNCLEAN)
    assert (after(plan).leader, after(plan).isr, after(plan).leader_recovery_state) == (1, (1,), 1)
    (batch,) = plan.requests
    assert [role.brokers for role in batch.roles] == [(1,)]
    start = context(topic("t", partition(-1, (1,), (1, 2))), brokers={1: None, 2: None})._replace(offline_dirs=offline)
    plan, _ = elect(start, UNCLEAN)
    assert after(plan).leader == 2
