"""The topics that coordinators keep their records in: made when first needed, in one step.

    embedded store    with as many replicas as there are brokers, which is one
    ZooKeeper         not before there are as many live brokers as the topic's replication factor asks for

In a cluster a topic that is made too early would stay on the brokers that happened to be there first.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from braidlog.broker.auto_topic_creation import AutoTopicCreation
from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.cluster import paths
from braidlog.cluster.records import decode_topic
from braidlog.cluster.store import CoordinationStore
from braidlog.config.broker import BrokerSettings
from braidlog.config.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from braidlog.controller.requests import NewTopic
from braidlog.core.ids import ZERO_ID
from braidlog.core.protocol_errors import CoordinatorNotAvailableError, ProtocolError
from braidlog.core.tasks import Tasks

log = logging.getLogger("braidlog.coordinator")

_FACTORS: Final = {
    OFFSETS_TOPIC: "offsets.topic.replication.factor",
    TRANSACTIONS_TOPIC: "transaction.state.log.replication.factor",
}


class InternalTopics:
    def __init__(
        self,
        creation: AutoTopicCreation,
        cache: MetadataCache,
        settings: DynamicBrokerSettings,
        tasks: Tasks,
        is_cluster: bool,
    ) -> None:
        self._creation = creation
        self._cache = cache
        self._settings = settings
        self._tasks = tasks
        self._is_cluster = is_cluster
        # Ids and partitions that the topics had when this broker started.
        self._stored: dict[str, tuple[bytes, int]] = {}
        self._creating: dict[str, asyncio.Task[ProtocolError | None]] = {}
        # What was last said of brokers that are missing, by topic: clients ask many times.
        self._said: dict[str, str] = {}

    async def read_partition_counts(self, store: CoordinationStore) -> None:
        """At start, before the controller tells this broker of the topics: perhaps of some of their partitions first.

        With fewer partitions than there are, names would be given to coordinators that do not have them.
        """
        names = list(_FACTORS)
        nodes = await store.get_many([paths.topic(name) for name in names])
        for name, node in zip(names, nodes, strict=True):
            if node is not None:
                record = decode_topic(paths.topic(name), node.data)
                self._stored[name] = record.topic_id, len(record.partitions)

    def partition_count(self, name: str) -> int:
        """Of the topic as it is; before it exists, as it will be."""
        topic = self._cache.image.topic(name)
        if topic is None:
            return self.wanted(name).partitions
        topic_id, stored = self._stored.get(name, (topic.topic_id, 0))
        same = topic_id in (ZERO_ID, topic.topic_id)
        return max(stored, len(topic.partitions)) if same else len(topic.partitions)

    def wanted(self, name: str) -> NewTopic:
        """How a topic of that name is made; an internal one with as many replicas as can be had."""
        settings = self._settings.current
        most = max(1, len(self._cache.image.brokers))
        if name == OFFSETS_TOPIC:
            return _offsets(settings, most)
        if name == TRANSACTIONS_TOPIC:
            return _transactions(settings, most)
        return NewTopic(name, replication_factor=settings.get_int("default.replication.factor"))

    async def ensure(self, name: str) -> None:
        """Once this returns the topic is there; callers at the same time share its creation.

        Raises COORDINATOR_NOT_AVAILABLE where that is left to the controller of another broker, or brokers are missing:
        clients ask again.
        """
        if self._cache.image.topic(name) is not None:
            return
        self._check_brokers(name)
        creating = self._creating.get(name)
        if creating is None:
            creating = self._creating[name] = self._tasks.spawn(f"creating {name}", self._create(name))
            creating.add_done_callback(lambda _: self._creating.pop(name, None))
        # One caller's connection may go away: the others still wait for the same creation.
        problem = await asyncio.shield(creating)
        if problem is not None:
            raise problem.with_traceback(None)

    def _check_brokers(self, name: str) -> None:
        key = _FACTORS.get(name)
        if key is None or not self._is_cluster:
            return
        live, factor = len(self._cache.image.brokers), self._settings.current.get_int(key)
        if live >= factor:
            return
        if live == 0:
            raise CoordinatorNotAvailableError("the controller has not told this broker of the cluster yet; try again")
        problem = (
            f"{name} cannot be created: {key} is {factor} and {live} broker{' is' if live == 1 else 's are'} alive; "
            f"start more, or set it to {live} on every broker"
        )
        if self._said.get(name) != problem:
            self._said[name] = problem
            log.warning("%s", problem)
        raise CoordinatorNotAvailableError(problem)

    async def _create(self, name: str) -> ProtocolError | None:
        """What the callers are refused with, for instance while the disk is full; the next one tries again."""
        try:
            error = (await self._creation.create([self.wanted(name)])).get(name)
        except ProtocolError as problem:
            return problem
        return None if error is None else CoordinatorNotAvailableError(f"{name} cannot be created: {error}")


def _offsets(settings: BrokerSettings, most_replicas: int) -> NewTopic:
    return NewTopic(
        OFFSETS_TOPIC,
        settings.get_int("offsets.topic.num.partitions"),
        min(settings.get_int("offsets.topic.replication.factor"), most_replicas),
        configs={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.get_int("offsets.topic.segment.bytes")),
        },
    )


def _transactions(settings: BrokerSettings, most_replicas: int) -> NewTopic:
    copies = min(settings.get_int("transaction.state.log.replication.factor"), most_replicas)
    return NewTopic(
        TRANSACTIONS_TOPIC,
        settings.get_int("transaction.state.log.num.partitions"),
        copies,
        configs={
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": str(min(settings.get_int("transaction.state.log.min.isr"), copies)),
            "segment.bytes": str(settings.get_int("transaction.state.log.segment.bytes")),
            "unclean.leader.election.enable": "false",
        },
    )
