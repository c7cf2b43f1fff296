"""Crashes of the controller at every write, and random lives of a cluster: whatever happens, it converges."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from braidlog.cluster import paths
from braidlog.cluster.store import SessionExpiredError
from braidlog.controller.requests import NewPartitions, NewTopic, PartitionChange, Reassignment, TopicRef
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import BrokerId, TopicPartition
from support.controller_cluster import Cluster, Node, run

T0 = TopicPartition("t", 0)


async def _create(cluster: Cluster) -> None:
    await cluster.controller.create_topics([NewTopic("new", 3, 2), NewTopic("other", 1, 1)])


async def _delete(cluster: Cluster) -> None:
    await cluster.controller.delete_topics([TopicRef("t"), TopicRef("u")])


async def _grow(cluster: Cluster) -> None:
    await cluster.controller.create_partitions([NewPartitions("t", 4)])


async def _move(cluster: Cluster) -> None:
    controller = cluster.controller
    await controller.alter_reassignments([Reassignment(T0, (2, 3))])
    await catch_up(cluster)


async def _lose_a_broker(cluster: Cluster) -> None:
    cluster.node(3).kill()
    await cluster.quiet()


async def catch_up(cluster: Cluster) -> None:
    """Leaders find every live replica in sync."""
    controller = cluster.controller
    for topic in list(controller._require().context.image.topics.values()):
        for index, info in enumerate(topic.partitions):
            live = tuple((each, -1) for each in info.replicas if cluster.nodes[each].alive)
            if info.partition_epoch >= 0 and info.leader in dict(live) and set(dict(live)) != set(info.isr):
                where = TopicPartition(topic.name, index)
                change = PartitionChange(where, info.leader_epoch, live, info.partition_epoch)
                await controller.alter_partition(info.leader, -1, [change])


@pytest.mark.parametrize("dies_after_write", [False, True])
@pytest.mark.parametrize("action", [_create, _delete, _grow, _move, _lose_a_broker])
def test_a_takeover_completes_what_a_controller_left_at_any_write(
    action: Callable[[Cluster], Awaitable[None]], dies_after_write: bool
) -> None:
    async def crash(cluster: Cluster, writes: int) -> bool:
        """Whether the controller died, and did not finish first."""
        await cluster.start(1, 2, 3)
        await cluster.quiet()
        # Small transactions, so that there is more to be interrupted.
        cluster.store_limit = 1_000
        (first, second) = await cluster.controller.create_topics(
            [NewTopic("t", assignments={0: (1, 2), 1: (2, 3)}), NewTopic("u", 2, 3)]
        )
        assert first.error is None
        assert second.error is None
        await cluster.quiet()
        node = cluster.controller_node
        node.writes_left, node.dies_after_write = writes, dies_after_write
        with suppress(ProtocolError, ValueError):
            await asyncio.wait_for(action(cluster), 100)
        await cluster.quiet()
        died = not node.alive
        node.writes_left = None
        await cluster.check_converged()
        for each in cluster.nodes.values():
            if not each.alive:
                await each.start()
        await cluster.quiet()
        await catch_up(cluster)
        await cluster.quiet()
        await cluster.check_converged()
        session = cluster.node(2).session
        assert await session.children(paths.DELETE_TOPICS) == []
        for topic in (await cluster.image()).topics.values():
            assert all(info.partition_epoch >= 0 and not info.reassigning for info in topic.partitions), topic
        return died

    for writes in range(40):
        cluster = Cluster(seed=writes)
        died: list[bool] = []

        async def body(cluster: Cluster, writes: int = writes, died: list[bool] = died) -> None:
            died.append(await crash(cluster, writes))

        run(cluster, body)
        if not died[0]:
            return
    raise AssertionError("an action takes fewer writes than that")


class Life:
    """Random deeds and misfortunes on three brokers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.rng = cluster.rng

    async def live(self, steps: int) -> None:
        cluster = self.cluster
        await cluster.start(1, 2, 3)
        doing: list[asyncio.Future[None]] = []
        for _ in range(steps):
            deed = self.rng.choice(
                [self.create, self.create, self.delete, self.grow, self.move, self.catch_up, self.catch_up, self.elect,
                 self.kill, self.revive, self.revive, self.expire, self.cut, self.resign, self.die_at_write]
            )  # fmt: skip
            doing.append(asyncio.ensure_future(self.do(deed)))
            await asyncio.sleep(self.rng.choice((0.0, 0.001, 0.05, 2.0, 20.0)))
        for node in cluster.nodes.values():
            node.cut_off, node.writes_left = False, None
        cluster.lost_answers = 0.0
        await asyncio.gather(*doing)
        for node in cluster.nodes.values():
            if not node.alive:
                await node.start()
        await cluster.quiet()
        await catch_up(cluster)
        await cluster.quiet()
        await cluster.check_converged()
        assert await cluster.node(1).session.children(paths.DELETE_TOPICS) == []

    async def do(self, deed: Callable[[], Awaitable[None]]) -> None:
        # Refused, overtaken by a new controller, no controller at all (unpacking fails), or killed meanwhile.
        with suppress(ProtocolError, ValueError, SessionExpiredError):
            await deed()

    def name(self) -> str:
        return self.rng.choice("abcd")

    def some_node(self) -> Node:
        return self.rng.choice(list(self.cluster.nodes.values()))

    def partitions(self) -> list[TopicPartition]:
        image = self.cluster.controller._require().context.image
        return [TopicPartition(topic.name, n) for topic in image.topics.values() for n in range(len(topic.partitions))]

    async def create(self) -> None:
        wanted = NewTopic(self.name(), self.rng.randint(1, 3), self.rng.randint(1, 3))
        await self.cluster.controller.create_topics([wanted])

    async def delete(self) -> None:
        await self.cluster.controller.delete_topics([TopicRef(self.name())])

    async def grow(self) -> None:
        await self.cluster.controller.create_partitions([NewPartitions(self.name(), self.rng.randint(2, 5))])

    async def move(self) -> None:
        where = self.rng.choice(self.partitions() or [T0])
        replicas = tuple(self.rng.sample((1, 2, 3), self.rng.randint(1, 3)))
        await self.cluster.controller.alter_reassignments([Reassignment(where, self.rng.choice((replicas, None)))])

    async def catch_up(self) -> None:
        await catch_up(self.cluster)

    async def elect(self) -> None:
        await self.cluster.controller.elect_leaders(self.rng.randint(0, 1), None)

    async def kill(self) -> None:
        self.some_node().kill()

    async def revive(self) -> None:
        node = self.some_node()
        if not node.alive and not node.starting:
            await node.start()

    async def expire(self) -> None:
        node = self.some_node()
        if node.alive and not node.starting:
            await node.expire()

    async def cut(self) -> None:
        node = self.some_node()
        node.cut_off = not node.cut_off
        self.cluster.lost_answers = self.rng.choice((0.0, 0.2))

    async def resign(self) -> None:
        await self.cluster.controller.resign()

    async def die_at_write(self) -> None:
        node = self.cluster.controller_node
        node.writes_left, node.dies_after_write = self.rng.randint(0, 3), self.rng.random() < 0.5


@pytest.mark.parametrize("seed", range(30))
def test_a_random_life_converges(seed: int) -> None:
    async def body(cluster: Cluster) -> None:
        await Life(cluster).live(40)

    run(Cluster(seed), body)


def test_the_same_seed_is_the_same_life() -> None:
    def told(seed: int) -> list[tuple[BrokerId, BrokerId, str]]:
        cluster = Cluster(seed)

        async def body(cluster: Cluster) -> None:
            await Life(cluster).live(20)

        run(cluster, body)
        return [(sender, receiver, repr(request)) for sender, receiver, request in cluster.sent]

    assert told(5) == told(5)
    assert told(5) != told(random.Random(5).randint(6, 99))
