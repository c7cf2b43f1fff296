from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from braidlog.broker.interbroker.alter_partition import AlterPartitionManager
from braidlog.cluster.image import BrokerInfo, ClusterImage, ImageDelta, PartitionInfo
from braidlog.cluster.store import SessionLease
from braidlog.config.log_settings import LogSettings
from braidlog.controller.requests import AlterPartitionResult, PartitionChange
from braidlog.core.clock import ManualClock
from braidlog.core.protocol_errors import NotControllerError
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId, TopicPartition
from braidlog.replication.partition import Partition, ReplicationContext
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.replication.topic_metrics import TopicMetrics
from braidlog.storage.files import OsFiles
from braidlog.storage.handles import HandlePool
from braidlog.storage.log.unified_log import UnifiedLog

LAG_S = 10.0


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - what is waited for tells nobody
            await asyncio.sleep(0)


class World:
    """Broker 1 leads three partitions, in sync with 2; the controller stores what it is asked."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock()
        self.lease = SessionLease(self.clock.monotonic, 1000.0)
        self.asked: list[Sequence[PartitionChange]] = []
        self.failures: list[Exception] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.live = {1, 2, 3}
        self.tasks = Tasks("test")
        self.registry = PartitionRegistry()
        self.manager = AlterPartitionManager(
            self.registry, self.ask, lambda: ClusterImage(), lambda: self.lease, self.tasks
        )
        context = ReplicationContext(self.clock, LAG_S, lambda broker: broker in self.live, self.manager.propose)
        self.partitions = [self.lead(root, index, context) for index in range(3)]

    def lead(self, root: Path, index: int, context: ReplicationContext) -> Partition:
        partition = Partition("orders", index, bytes(16), 1, TopicMetrics(), context)
        files = OsFiles()
        where = TopicPartition("orders", index)
        partition.log = UnifiedLog.open(
            str(root / str(where)), where, LogSettings(), files=files, handles=HandlePool(files), clock=self.clock
        )
        partition.update_leader_and_isr(1, 4, (1, 2), (1, 2, 3), 7)
        self.registry.add(partition)
        return partition

    async def ask(self, changes: Sequence[PartitionChange]) -> Sequence[AlterPartitionResult]:
        self.asked.append(changes)
        await self.gate.wait()
        if self.failures:
            raise self.failures.pop()
        return [
            AlterPartitionResult(
                change.partition,
                None,
                PartitionInfo(
                    BrokerId(1),
                    change.leader_epoch,
                    tuple(each for each, _ in change.isr),
                    (),
                    partition_epoch=change.partition_epoch + 1,
                ),
            )
            for change in changes
        ]

    def fetch(self, broker: int, index: int) -> None:
        partition = self.partitions[index]
        partition.follower_fetched(partition.remote_replica(broker, 4), 0, 0, -1, partition.context.clock.monotonic())

    async def check(self) -> None:
        for _ in self.manager.job(LAG_S).run():
            await asyncio.sleep(0)

    @property
    def isrs(self) -> list[tuple[int, ...]]:
        return [partition.isr for partition in self.partitions]


def on_world(run: Callable[[World], Awaitable[None]]) -> Callable[[Path], None]:
    def test(tmp_path: Path) -> None:
        async def in_loop() -> None:
            world = World(tmp_path)
            try:
                await run(world)
            finally:
                await world.tasks.close()
                for partition in world.partitions:
                    assert partition.log is not None
                    partition.log.close(flush=False)

        asyncio.run(in_loop())

    return test


@on_world
async def test_one_request_at_a_time_has_all_that_gathered(world: World) -> None:
    world.gate.clear()
    world.fetch(3, 0)
    await until(lambda: len(world.asked) == 1)
    world.fetch(3, 1)
    world.fetch(3, 2)
    await asyncio.sleep(0)
    assert [len(changes) for changes in world.asked] == [1]
    world.gate.set()
    await until(lambda: world.isrs == [(1, 2, 3)] * 3)
    assert [len(changes) for changes in world.asked] == [1, 2]


@on_world
async def test_others_are_served_between_two_of_very_many_answers(world: World) -> None:
    # A slice of time is over whenever somebody asks.
    ticks = itertools.count()
    asyncio.get_running_loop().monotonic = ticks.__next__  # type: ignore[attr-defined]
    for index in range(3):
        world.fetch(3, index)
    stored: list[int] = []
    while world.isrs != [(1, 2, 3)] * 3:
        await asyncio.sleep(0)
        stored.append(world.isrs.count((1, 2, 3)))
    assert len(world.asked) == 1
    assert {1, 2}.issubset(stored)


@on_world
async def test_what_is_not_answered_is_sent_again(world: World) -> None:
    world.failures.append(NotControllerError())
    world.fetch(3, 0)
    await until(lambda: world.isrs[0] == (1, 2, 3))
    assert world.asked[0] == world.asked[1]


@on_world
async def test_without_a_session_nothing_is_asked(world: World) -> None:
    world.clock.advance(1001)
    world.fetch(3, 0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert world.asked == []
    progress = world.partitions[0].progress
    assert progress is not None
    assert progress.maximal_isr == (1, 2, 3)
    world.lease = SessionLease(world.clock.monotonic, 1000.0)
    await until(lambda: world.isrs[0] == (1, 2, 3))


@on_world
async def test_who_lags_is_found_by_the_job(world: World) -> None:
    world.fetch(2, 0)
    world.clock.advance(LAG_S + 1)
    await world.check()
    await until(lambda: world.isrs == [(1, 2), (1,), (1,)])


@on_world
async def test_a_broker_that_the_leader_hears_of_late_joins(world: World) -> None:
    world.live = {1, 2}
    world.fetch(3, 0)
    world.live = {1, 2, 3}
    brokers = {BrokerId(3): BrokerInfo(BrokerId(3), 1, ())}
    await world.manager.image_changed(ClusterImage(), ImageDelta())
    assert world.isrs[0] == (1, 2)
    await world.manager.image_changed(ClusterImage(), ImageDelta(brokers=brokers))
    await until(lambda: world.isrs[0] == (1, 2, 3))
