from __future__ import annotations

import pytest

from braidlog.cluster.image import PartitionInfo, no_leader
from braidlog.controller.brokers import controlled_shutdown, handed_over, repair, take_over
from braidlog.controller.plan import ControllerContext, Plan
from braidlog.core import protocol_errors as errors
from braidlog.core.types import NO_BROKER, BrokerId, TopicPartition
from support.controller_cluster import T0, Cluster, create, in_cluster, isr_change, state
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


def test_leaders_that_restarted_between_two_controllers_get_a_new_epoch() -> None:
    """One that lost its unsynced tail must not go on in the epoch in which its followers copied that."""
    held = partition(1, (1, 2), (1, 2), epoch=3)
    start = context(topic("t", held), topic("u", held), brokers={1: None, 2: None})
    plan = take_over(start, ["t", "u"], restarted={TopicPartition("t", 0)})
    ((_, changed),) = plan.delta.topics_changed
    assert changed.name == "t"
    (info,) = changed.partitions
    assert (info.leader, info.isr, info.leader_epoch) == (1, (1, 2), 4)


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


def test_a_broker_that_starts_hears_of_whole_topics_at_once() -> None:
    """Of what changes with its start, and of what does not: a part of a topic must not be taken for all of it."""
    start = context(topic("t", partition(1, (1,), (1,)), partition(NO_BROKER, (2,), (2,))), brokers={1: None, 2: None})
    plan = repair(start, ["t"], started=frozenset((BrokerId(2),)))
    first = plan.requests[0]
    assert first.metadata_to == (2,)
    assert list(first.metadata) == [TopicPartition("t", 0), TopicPartition("t", 1)]


@in_cluster(1, 2, 3)
async def test_the_leaders_of_a_broker_that_dies_move(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3), (3, 2))
    await create(cluster, "u", (2,))
    cluster.node(2).kill()
    await cluster.quiet()
    assert state(cluster) == (3, 1, (3,))
    assert state(cluster, TopicPartition("t", 1)) == (3, 1, (3,))
    assert state(cluster, TopicPartition("u", 0)) == (NO_BROKER, 1, (2,))
    gauges = cluster.controller.gauges
    assert (gauges.offline_partitions_count, gauges.preferred_replica_imbalance_count) == (1, 2)
    assert cluster.node(1).broker.metadata[T0].offline == (2,)
    await cluster.check_converged()
    await cluster.start(2)
    await cluster.quiet()
    assert state(cluster, TopicPartition("u", 0)) == (2, 2, (2,))
    # In sync again only when its leader says so.
    assert state(cluster) == (3, 1, (3,))
    assert gauges.offline_partitions_count == 0
    await cluster.check_converged()


@in_cluster(1, 2, 3)
async def test_what_a_broker_that_refuses_connections_led_moves_before_its_session_ends(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3), (3, 2), (2, 1))
    await create(cluster, "u", (2,))
    cluster.node(2).die()
    await cluster.quiet()
    assert BrokerId(2) in (await cluster.image()).brokers
    assert state(cluster) == (3, 1, (3,))
    assert state(cluster, TopicPartition("t", 1)) == (3, 1, (3,))
    assert state(cluster, TopicPartition("t", 2)) == (1, 1, (1,))
    # Nobody else has its records.
    assert state(cluster, TopicPartition("u", 0)) == (2, 0, (2,))
    await cluster.store.expire(cluster.node(2).session)
    await cluster.quiet()
    # Nothing is left to be done for what has moved.
    assert state(cluster) == (3, 1, (3,))
    assert state(cluster, TopicPartition("u", 0)) == (NO_BROKER, 1, (2,))
    await cluster.check_converged()


@in_cluster(1, 2, 3)
async def test_a_broker_that_is_only_cut_off_leads_until_its_session_ends(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3))
    cluster.node(2).cut_off = True
    for callback in cluster.node(2).when_killed:
        callback()
    await cluster.quiet()
    assert state(cluster) == (2, 0, (2, 3))
    cluster.node(2).cut_off = False


def test_an_earlier_life_of_a_broker_hands_nothing_over() -> None:
    start = context(topic("t", partition(1, (1, 2), (1, 2))), brokers={1: None, 2: None})
    registered = start.image.brokers[BrokerId(1)]
    assert handed_over(start, registered._replace(epoch=registered.epoch - 1), ["t"]).delta.empty
    assert (after(handed_over(start, registered, ["t"])).leader) == 2


@in_cluster(1, 2, 3)
async def test_a_controlled_shutdown_moves_leaders_first(cluster: Cluster) -> None:
    await create(cluster, "t", (2, 3), (3, 2))
    await create(cluster, "u", (2,))
    epoch = cluster.node(2).broker.epoch
    with pytest.raises(errors.StaleBrokerEpochError):
        await cluster.controller.controlled_shutdown(BrokerId(2), epoch - 1)
    with pytest.raises(errors.BrokerNotAvailableError):
        await cluster.controller.controlled_shutdown(BrokerId(9), -1)
    assert await cluster.controller.controlled_shutdown(BrokerId(2), epoch) == []
    assert state(cluster) == (3, 1, (3,))
    assert state(cluster, TopicPartition("t", 1)) == (3, 1, (3,))
    assert state(cluster, TopicPartition("u", 0)) == (2, 0, (2,))
    # It does not come back into an ISR while it leaves.
    (refused,) = await cluster.controller.alter_partition(BrokerId(3), -1, [isr_change(cluster, (3, 2))])
    assert isinstance(refused.error, errors.IneligibleReplicaError)
    assert await cluster.controller.controlled_shutdown(BrokerId(3), -1) == [T0, TopicPartition("t", 1)]


def test_a_leader_that_shuts_down_stays_in_sync_when_another_broker_leaves() -> None:
    """It got the partition after it had asked. A leader out of its ISR would lose that to the next failure."""
    start = context(topic("t", partition(1, (1, 3, 2), (1, 3, 2))), brokers={1: None, 2: None, 3: None})
    start = start._replace(shutting_down=frozenset((BrokerId(1),)))
    left = after(handed_over(start, start.image.brokers[BrokerId(2)], ["t"]))
    assert (left.leader, left.isr) == (1, (1, 3))
    plan, remaining = controlled_shutdown(start, BrokerId(2), -1, ["t"])
    assert (after(plan).leader, after(plan).isr, remaining) == (1, (1, 3), [])
