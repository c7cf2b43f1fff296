from __future__ import annotations

import asyncio
import threading

from braidlog.cluster import paths
from braidlog.cluster.control_requests import LeaderAndIsr, StopReplica, UpdateMetadata
from braidlog.controller.plan import ControllerContext, Plan
from braidlog.controller.requests import (
    NewTopic,
    TopicRef,
)
from support.controller_cluster import T0, Cluster, create, in_cluster, requests_to
from support.controller_harness import ids, one_broker


@in_cluster(1, 2, 3)
async def test_a_broker_that_knows_a_newer_controller_ends_an_old_one(cluster: Cluster) -> None:
    first = cluster.controller
    cluster.node(2).broker.controller_epoch = 3
    await create(cluster, "t", (1, 2))
    await asyncio.sleep(0.1)
    assert not first.active
    await cluster.quiet()
    # A new election each time, until the epoch is new to everyone.
    assert (await cluster.node(1).session.get(paths.CONTROLLER_EPOCH)).data == b"3"
    await cluster.check_converged()


@in_cluster(1, 2, 3)
async def test_the_queue_of_a_broker_is_dropped_with_its_epoch(cluster: Cluster) -> None:
    cluster.node(3).cut_off = True
    await create(cluster, "t", (3,), (3,))
    await cluster.quiet()
    cluster.node(3).kill()
    cluster.node(3).cut_off = False
    await cluster.quiet()
    await cluster.start(3)
    await cluster.quiet()
    stale = [request for request in requests_to(cluster, 3) if request.broker_epoch != cluster.node(3).broker.epoch]
    since = [request for request in requests_to(cluster, 3) if request.broker_epoch == cluster.node(3).broker.epoch]
    assert all(isinstance(request, UpdateMetadata) for request in stale)
    assert isinstance(since[0], UpdateMetadata)
    await cluster.check_converged()
    assert ids(3) == cluster.node(1).broker.metadata[T0].isr


async def test_a_decision_about_very_many_partitions_is_made_in_a_thread() -> None:
    decided_in: list[int] = []

    def decide(context: ControllerContext) -> tuple[Plan, None]:
        decided_in.append(threading.get_ident())
        return Plan(), None

    async with one_broker() as broker:
        active = broker.controller._require()
        for partitions in (10, 10_000):
            await active.ask(decide, partitions=partitions)
        assert decided_in[0] == threading.get_ident() != decided_in[1]


async def test_a_topic_of_very_many_partitions_is_made_and_deleted() -> None:
    async with one_broker() as broker:
        (made,) = await broker.controller.create_topics([NewTopic("t", 2_500, 1)])
        assert made.error is None
        assert broker.controller.image.partition_count == 2_500
        roles = broker.channel.of(LeaderAndIsr)
        assert [len(request.partitions) for request in roles] == [1_000, 1_000, 500]
        (deleted,) = await broker.controller.delete_topics([TopicRef("t")])
        assert deleted.error is None
        await broker.settled()
        assert await broker.session.children(paths.TOPICS) == []
        stops = broker.channel.of(StopReplica)
        assert [len(request.partitions) for request in stops] == [1_000, 1_000, 500] * 2
