from __future__ import annotations

from braidlog.cluster.image import PartitionInfo, no_leader
from braidlog.controller.brokers import take_over
from braidlog.controller.plan import ControllerContext, Plan
from braidlog.core.types import NO_BROKER
from support.controller_harness import context, partition, topic


def taken_over(start: ControllerContext, bump_leader_epochs: bool) -> Plan:
    return take_over(start, list(start.image.topics), bump_leader_epochs)


def after(plan: Plan) -> PartitionInfo:
    return plan.delta.topics_changed[0][1].partitions[0]


def test_taking_over_a_healthy_cluster_changes_nothing() -> None:
    plan = taken_over(context(topic("t")), False)
    assert plan.delta.empty
    assert not plan.steps


def test_after_an_unclean_stop_every_leader_gets_a_new_epoch() -> None:
    plan = taken_over(context(topic("t", partition(1, (1,), (1,), epoch=3))), True)
    assert (after(plan).leader, after(plan).leader_epoch) == (1, 4)


def test_taking_over_elects_for_dead_leaders_and_keeps_the_last_in_sync() -> None:
    start = context(
        topic("t", partition(9, (9, 1), (9, 1))), topic("lost", partition(9, (9,), (9, 1), epoch=2)), brokers={1: None}
    )
    changed = {new.name: new.partitions[0] for _, new in taken_over(start, False).delta.topics_changed}
    assert (changed["t"].leader, changed["t"].isr, changed["t"].leader_epoch) == (1, (1,), 1)
    assert (changed["lost"].leader, changed["lost"].isr, changed["lost"].leader_epoch) == (NO_BROKER, (9,), 3)


def test_taking_over_starts_partitions_that_never_had_a_state() -> None:
    start = context(topic("t", no_leader(partition(1, (), (9, 1)).replicas)))
    plan = taken_over(start, False)
    assert (after(plan).leader, after(plan).isr, after(plan).leader_epoch) == (1, (1,), 0)
    assert plan.steps[-1].path == "/brokers/topics/t/partitions/0/state"
