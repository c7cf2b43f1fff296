"""Leaders that store ISR changes by themselves, on simulated ZooKeeper servers that lag and lose answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import pytest

from braidlog.broker.interbroker.zk_alter_partition import ZkAlterPartition
from braidlog.cluster import paths, records
from braidlog.cluster.records import PartitionStateRecord
from braidlog.cluster.store import CoordinationStore, UnknownOutcomeError
from braidlog.controller.requests import AlterPartitionResult, PartitionChange
from braidlog.core.protocol_errors import FencedLeaderEpochError
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId, LeaderEpoch, TopicPartition
from braidlog.testing.simulated.loop import SimulatedClock, SimulatedLoop
from braidlog.testing.simulated.zookeeper import SimulatedZooKeeper

LEADER = BrokerId(1)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SEEDS = range(10)


class World:
    """Broker 1 leads two partitions in epoch 4, with 2 and 3 in sync; their states are at version 0."""

    def __init__(self, loop: SimulatedLoop, store: CoordinationStore, zookeeper: SimulatedZooKeeper) -> None:
        self.loop = loop
        self.store = store
        self.zookeeper = zookeeper
        self.tasks = Tasks("test")
        self.leader = ZkAlterPartition(lambda: store, LEADER, SimulatedClock(loop), self.tasks)

    async def put(self, where: TopicPartition, leader: int, epoch: int, isr: tuple[int, ...], version: int) -> None:
        data = records.encode_partition_state(PartitionStateRecord(leader, epoch, isr, 9))
        await self.store.set(paths.partition_state(*where), data, version)

    async def state(self, where: TopicPartition) -> tuple[PartitionStateRecord, int]:
        await self.store.sync()
        path = paths.partition_state(*where)
        node = await self.store.get(path)
        return records.decode_partition_state(path, node.data), node.stat.version

    async def alter(self, *changes: PartitionChange) -> list[AlterPartitionResult]:
        """As who asks does: what is not answered is asked again."""
        answered: dict[TopicPartition, AlterPartitionResult] = {}
        async with asyncio.timeout(60):
            while len(answered) < len(changes):
                left = [change for change in changes if change.partition not in answered]
                with suppress(UnknownOutcomeError):
                    answered.update({each.partition: each for each in await self.leader.alter_partition(left)})
                await asyncio.sleep(0.05)
        return [answered[change.partition] for change in changes]

    async def told(self) -> list[list[TopicPartition]]:
        await self.store.sync()
        names = sorted(await self.store.children(paths.ISR_CHANGES))
        nodes = await self.store.get_many([f"{paths.ISR_CHANGES}/{name}" for name in names])
        return [records.decode_isr_change(name, node.data) for name, node in zip(names, nodes, strict=True) if node]


def in_world(body: Callable[[World], Awaitable[None]]) -> Callable[[int], None]:
    @pytest.mark.parametrize("seed", SEEDS)
    def test(seed: int) -> None:
        random = Random(seed)
        loop = SimulatedLoop(random)  # type: ignore[abstract]
        zookeeper = SimulatedZooKeeper(loop, random, SimulatedClock(loop))

        async def run() -> None:
            store = await zookeeper.open_session("broker")
            world = World(loop, store, zookeeper)
            for path in (paths.ISR_CHANGES, "/brokers", "/brokers/topics", "/brokers/topics/t"):
                await store.create(path)
            await store.create("/brokers/topics/t/partitions")
            for where in (T0, T1):
                path = paths.partition_state(*where)
                await store.create(path.rpartition("/")[0])
                state = PartitionStateRecord(LEADER, 4, (1, 2, 3), 9)
                await store.create(path, records.encode_partition_state(state))
            await body(world)
            await world.tasks.close()

        loop.run_until_complete(run())
        assert loop.problems == []
        loop.close()

    return test


def change(where: TopicPartition, *isr: int, epoch: int = 4, version: int = 0) -> PartitionChange:
    return PartitionChange(where, LeaderEpoch(epoch), tuple((BrokerId(each), -1) for each in isr), version)


@in_world
async def test_what_is_stored_differs_in_the_isr_alone(world: World) -> None:
    shrunk, grown = await world.alter(change(T0, 1, 2), change(T1, 1))
    assert shrunk.info is not None
    assert (shrunk.info.isr, shrunk.info.partition_epoch) == ((1, 2), 1)
    assert await world.state(T0) == (PartitionStateRecord(1, 4, (1, 2), 9), 1)
    assert await world.state(T1) == (PartitionStateRecord(1, 4, (1,), 9), 1)
    assert grown.error is None
    (grown,) = await world.alter(change(T1, 1, 3, version=1))
    assert await world.state(T1) == (PartitionStateRecord(1, 4, (1, 3), 9), 2)


@in_world
async def test_a_lost_answer_is_found_out(world: World) -> None:
    asked = asyncio.ensure_future(world.alter(change(T0, 1, 2)))
    await asyncio.sleep(0.001)
    world.zookeeper.break_link("broker")
    (stored,) = await asked
    assert stored.info is not None
    assert (stored.info.isr, stored.info.partition_epoch) == ((1, 2), 1)
    assert await world.state(T0) == (PartitionStateRecord(1, 4, (1, 2), 9), 1)


@in_world
async def test_a_state_that_another_has_written_is_not_overwritten(world: World) -> None:
    await world.put(T0, leader=2, epoch=5, isr=(2, 3), version=0)
    await world.put(T1, leader=1, epoch=4, isr=(1, 3), version=0)
    await world.store.sync()
    fenced, taken = await world.alter(change(T0, 1), change(T1, 1, 2))
    assert isinstance(fenced.error, FencedLeaderEpochError)
    assert await world.state(T0) == (PartitionStateRecord(2, 5, (2, 3), 9), 1)
    assert taken.info is not None
    assert (taken.info.isr, taken.info.partition_epoch) == ((1, 3), 1)
    assert await world.state(T1) == (PartitionStateRecord(1, 4, (1, 3), 9), 1)


@in_world
async def test_the_controller_is_told_once_no_more_changes_come(world: World) -> None:
    began = world.loop.time()
    await world.alter(change(T0, 1, 2))
    await asyncio.sleep(4.0)
    await world.alter(change(T1, 1))
    while not await world.told():  # noqa: ASYNC110 - simulated time has to pass
        await asyncio.sleep(0.1)
    assert 9.0 < world.loop.time() - began < 13.0
    assert await world.told() == [[T0, T1]]
    await asyncio.sleep(100.0)
    assert len(await world.told()) == 1


@in_world
async def test_the_controller_is_told_after_a_minute_however_often_there_are_changes(world: World) -> None:
    began = world.loop.time()
    version = 0
    while not await world.told():
        await world.alter(change(T0, *((1, 2) if version % 2 else (1,)), version=version))
        version += 1
        await asyncio.sleep(2.0)
    assert 60.0 < world.loop.time() - began < 66.0
    assert await world.told() == [[T0]]
