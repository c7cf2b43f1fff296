"""The fetchers of this broker: `num.replica.fetchers` for each broker that leads partitions which are followed here."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from braidlog.broker.interbroker.network import InterBrokerNetwork
from braidlog.broker.interbroker.replica_fetcher import FetcherContext, ReplicaFetcher
from braidlog.cluster.image import BrokerInfo
from braidlog.config.broker import BrokerSettings
from braidlog.coordinator.partitioning import java_hash
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId, TopicPartition
from braidlog.replication.follower import PartitionFetchState
from braidlog.replication.partition import Partition


class FetcherId(NamedTuple):
    leader: BrokerId
    number: int


class ReplicaFetcherManager:
    def __init__(
        self,
        context: FetcherContext,
        network: InterBrokerNetwork,
        brokers: Callable[[], Mapping[BrokerId, BrokerInfo]],
        tasks: Tasks,
    ) -> None:
        """`brokers` are the live ones, as they are announced now."""
        self._context = context
        self._network = network
        self._brokers = brokers
        self._tasks = tasks
        self._count = self._configured_count(context.settings())
        self._fetchers: dict[FetcherId, ReplicaFetcher] = {}
        self._running: dict[FetcherId, asyncio.Task[Any]] = {}
        self._followed: dict[TopicPartition, FetcherId] = {}
        # As the controller named them with the roles: it announces brokers only after that.
        self._leaders: dict[BrokerId, BrokerInfo] = {}
        # When the rates of fetchers were last asked for, and how many requests each had made by then.
        self._rates_since = context.clock.monotonic()
        self._requests_then: dict[ReplicaFetcher, int] = {}

    @staticmethod
    def _configured_count(settings: BrokerSettings) -> int:
        return max(1, settings.get_int("num.replica.fetchers"))

    @property
    def fetchers(self) -> dict[FetcherId, ReplicaFetcher]:
        return self._fetchers

    def leaders_named(self, leaders: Mapping[BrokerId, BrokerInfo]) -> None:
        self._leaders.update(leaders)

    def follow(self, partition: Partition, *, unclean: bool = False) -> None:
        """From the partition's leader, in its leader epoch; whatever was fetched of it before is not any more."""
        state = PartitionFetchState(partition, unclean=unclean)
        self.unfollow(state.key)
        self._assign(state, BrokerId(partition.leader))

    def _assign(self, state: PartitionFetchState, leader: BrokerId) -> None:
        at = FetcherId(leader, fetcher_number(state.key, self._count))
        self._followed[state.key] = at
        fetcher = self._fetchers.get(at)
        if fetcher is None:
            fetcher = self._fetchers[at] = self._start(at)
        fetcher.add(state)

    def unfollow(self, key: TopicPartition) -> None:
        """What is under way for it is not appended."""
        at = self._followed.pop(key, None)
        if at is not None:
            self._fetchers[at].remove(key)

    def throttle_changed(self, key: TopicPartition) -> None:
        """The topic's settings say of this replica whether it is throttled."""
        at = self._followed.get(key)
        if at is not None:
            self._fetchers[at].throttle_changed(key)

    def end_idle(self) -> None:
        """Once a request about roles is dealt with: fetchers that have lost all their partitions."""
        for at in [at for at, fetcher in self._fetchers.items() if fetcher.is_idle]:
            self._end(at)

    def settings_changed(self, settings: BrokerSettings, keys: list[str]) -> None:
        if self._configured_count(settings) == self._count:
            return
        self._count = self._configured_count(settings)
        followed = [(at.leader, state) for at, fetcher in self._fetchers.items() for state in fetcher.partitions]
        for at in list(self._fetchers):
            self._end(at)
        self._followed = {}
        for leader, state in followed:
            self._assign(PartitionFetchState(state.partition, unclean=state.unclean), leader)

    # What operators watch

    @property
    def max_lag(self) -> int:
        """The most records that a partition followed here is behind what its leader has committed."""
        return max((state.lag for fetcher in self._fetchers.values() for state in fetcher.partitions), default=0)

    @property
    def failed_partitions(self) -> int:
        """Those whose last fetch failed; all of them are tried again."""
        return sum(1 for fetcher in self._fetchers.values() for state in fetcher.partitions if state.failures)

    @property
    def dead_fetchers(self) -> int:
        return sum(1 for task in self._running.values() if task.done())

    def min_fetch_rate(self) -> float:
        """Requests a second of the slowest fetcher since this was last asked for."""
        now = self._context.clock.monotonic()
        elapsed, self._rates_since = now - self._rates_since, now
        before, self._requests_then = (
            self._requests_then,
            {fetcher: fetcher.requests for fetcher in self._fetchers.values()},
        )
        made = [requests - before.get(fetcher, 0) for fetcher, requests in self._requests_then.items()]
        return min(made) / elapsed if made and elapsed > 0 else 0.0

    def _start(self, at: FetcherId) -> ReplicaFetcher:
        connection = self._network.connect_to(
            at.leader, lambda: self._brokers().get(at.leader) or self._leaders.get(at.leader), f"fetcher-{at.number}"
        )
        fetcher = ReplicaFetcher(at.leader, connection, self._context)
        self._running[at] = self._tasks.spawn(f"fetcher {at.number} of broker {at.leader}", fetcher.run())
        return fetcher

    def _end(self, at: FetcherId) -> None:
        self._running.pop(at).cancel()
        self._fetchers.pop(at).close()


def fetcher_number(key: TopicPartition, count: int) -> int:
    """As Kafka spreads partitions over the fetchers of a leader."""
    value = (31 * java_hash(key.topic) + key.partition) & 0xFFFFFFFF
    return (value if value < 0x8000_0000 else (0x1_0000_0000 - value) & 0x7FFFFFFF) % count
