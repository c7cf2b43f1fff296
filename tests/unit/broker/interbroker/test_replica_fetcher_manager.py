from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from braidlog.broker.environment import Executors
from braidlog.broker.interbroker.network import InterBrokerNetwork
from braidlog.broker.interbroker.replica_fetcher import FetcherContext
from braidlog.broker.interbroker.replica_fetcher_manager import FetcherId, ReplicaFetcherManager, fetcher_number
from braidlog.cluster.image import BrokerInfo
from braidlog.config.broker import BrokerSettings
from braidlog.core.clock import SystemClock
from braidlog.core.replication_quota import ReplicationQuota
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId, Endpoint, TopicPartition
from braidlog.net.outbound.connector import Address, Connector
from braidlog.net.outbound.errors import ClientError, NoConnection
from braidlog.replication.partition import Partition
from braidlog.replication.topic_metrics import TopicMetrics
from braidlog.storage.jobs import InlineExecutor
from support.manager_fixture import Broker, tp

ME, FIRST, SECOND = BrokerId(1), BrokerId(2), BrokerId(3)


class Unreachable:
    """Notes where connections are wanted, and makes none."""

    def __init__(self) -> None:
        self.tried: asyncio.Queue[Address] = asyncio.Queue()

    async def connect(self, address: Address) -> Any:
        self.tried.put_nowait(address)
        raise NoConnection("not today")

    async def explain(self, address: Address, problem: NoConnection) -> ClientError:
        return problem


class Following:
    def __init__(self, path: Path) -> None:
        self.broker = Broker(path).start()
        self.connector = Unreachable()
        self.settings = BrokerSettings({})
        self.brokers: dict[BrokerId, BrokerInfo] = {}
        self.tasks = Tasks("test")
        context = FetcherContext(
            broker_id=ME,
            broker_epoch=lambda: 1,
            settings=lambda: self.settings,
            clock=SystemClock(),
            executors=Executors(lambda directory: InlineExecutor()),
            logs=self.broker.manager,
            sync_rolled=lambda partition, offset: None,
            on_fault=lambda fault: None,
            quota=ReplicationQuota(SystemClock()),
            is_in_isr=lambda key: False,
        )
        network = InterBrokerNetwork(
            ME, "PLAINTEXT", lambda: self.settings, Random(1), cast("Connector", self.connector)
        )
        self.manager = ReplicaFetcherManager(context, network, lambda: self.brokers, self.tasks)

    def partition(self, topic: str, leader: BrokerId, epoch: int = 1) -> Partition:
        partition = Partition(topic, 0, topic.encode() * 16, ME, TopicMetrics())
        partition.log = self.broker.manager.create(tp(topic))
        partition.update_leader_and_isr(leader, epoch, (leader, ME), (leader, ME))
        return partition

    def followed(self) -> dict[FetcherId, list[str]]:
        return {at: [state.key.topic for state in fetcher.partitions] for at, fetcher in self.manager.fetchers.items()}


@pytest.fixture
def following(tmp_path: Path) -> Callable[[Callable[[Following], Coroutine[Any, Any, None]]], None]:
    def run(work: Callable[[Following], Coroutine[Any, Any, None]]) -> None:
        async def inside() -> None:
            each = Following(tmp_path)
            await work(each)
            await each.tasks.close()

        asyncio.run(inside())

    return run


Run = Callable[[Callable[[Following], Coroutine[Any, Any, None]]], None]


def test_there_is_a_fetcher_for_each_leader_and_none_without_partitions(following: Run) -> None:
    async def work(each: Following) -> None:
        manager = each.manager
        manager.follow(each.partition("a", FIRST))
        manager.follow(each.partition("b", FIRST))
        manager.follow(each.partition("c", SECOND))
        assert each.followed() == {FetcherId(FIRST, 0): ["a", "b"], FetcherId(SECOND, 0): ["c"]}
        manager.follow(each.partition("b", SECOND, epoch=2))
        manager.unfollow(tp("a"))
        manager.unfollow(tp("a"))
        manager.end_idle()
        assert each.followed() == {FetcherId(SECOND, 0): ["c", "b"]}
        for _ in range(3):
            await asyncio.sleep(0)
        assert len(each.tasks) == 1

    following(work)


def test_what_operators_watch_is_the_worst_of_all_fetchers(following: Run) -> None:
    async def work(each: Following) -> None:
        manager = each.manager
        assert (manager.max_lag, manager.failed_partitions, manager.dead_fetchers) == (0, 0, 0)
        assert manager.min_fetch_rate() == 0.0
        for topic, leader in (("a", FIRST), ("b", FIRST), ("c", SECOND)):
            manager.follow(each.partition(topic, leader))
        first, second = manager.fetchers.values()
        first.partitions[1].lag = 7
        first.partitions[0].failures = 2
        first.requests, second.requests = 1_000_000, 500_000
        rate = manager.min_fetch_rate()
        assert rate > 0
        assert (manager.max_lag, manager.failed_partitions, manager.dead_fetchers) == (7, 1, 0)
        # Of what was asked since.
        first.requests += 10
        assert manager.min_fetch_rate() == 0.0
        await each.tasks.close()
        assert manager.dead_fetchers == 2

    following(work)


def test_a_leader_is_looked_for_each_time_that_a_connection_is_made(following: Run) -> None:
    async def work(each: Following) -> None:
        def at(port: int) -> BrokerInfo:
            return BrokerInfo(FIRST, 1, (Endpoint("PLAINTEXT", "localhost", port),))

        async def until(port: int) -> None:
            while await each.connector.tried.get() != ("localhost", port):
                pass

        each.manager.follow(each.partition("a", FIRST))
        await asyncio.sleep(0)
        assert each.connector.tried.empty()
        each.manager.leaders_named({FIRST: at(1)})
        await asyncio.wait_for(until(1), 20)
        each.brokers[FIRST] = at(2)
        await asyncio.wait_for(until(2), 20)

    following(work)


def test_more_fetchers_share_the_partitions_of_a_leader(following: Run) -> None:
    async def work(each: Following) -> None:
        manager = each.manager
        for topic in ("a", "b", "c", "d"):
            manager.follow(each.partition(topic, FIRST))
        each.settings = BrokerSettings({"num.replica.fetchers": "2"})
        manager.settings_changed(each.settings, ["num.replica.fetchers"])
        assert each.followed() == {FetcherId(FIRST, 1): ["a", "c"], FetcherId(FIRST, 0): ["b", "d"]}
        manager.settings_changed(each.settings, [])
        manager.unfollow(tp("c"))
        assert each.followed()[FetcherId(FIRST, 1)] == ["a"]

    following(work)


def test_partitions_are_spread_as_kafka_does() -> None:
    """`abs(31 * topic.hashCode() + partition) % n`, in 32 bits: the hash of "orders" is -1008770331."""
    wrapped = 31 * -1008770331 + 7 * 2**32
    assert -(2**31) <= wrapped < 0
    assert [fetcher_number(TopicPartition("orders", index), 7) for index in range(3)] == [
        -(wrapped + index) % 7 for index in range(3)
    ]
    assert fetcher_number(TopicPartition("", 0), 5) == 0
