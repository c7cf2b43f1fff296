"""The topics that coordinators keep their records in: made when first needed, in one step."""

from __future__ import annotations

import asyncio

from braidlog.broker.auto_topic_creation import AutoTopicCreation
from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.broker.replica_limit import MOST_REPLICAS
from braidlog.config.broker import BrokerSettings
from braidlog.config.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from braidlog.controller.requests import NewTopic
from braidlog.core.protocol_errors import CoordinatorNotAvailableError, ProtocolError
from braidlog.core.tasks import Tasks


class InternalTopics:
    def __init__(
        self, creation: AutoTopicCreation, cache: MetadataCache, settings: DynamicBrokerSettings, tasks: Tasks
    ) -> None:
        self._creation = creation
        self._cache = cache
        self._settings = settings
        self._tasks = tasks
        self._creating: dict[str, asyncio.Task[ProtocolError | None]] = {}

    def partition_count(self, name: str) -> int:
        """Of the topic as it is; before it exists, as it will be."""
        topic = self._cache.image.topic(name)
        if topic is not None:
            return len(topic.partitions)
        return self.wanted(name).partitions

    def wanted(self, name: str) -> NewTopic:
        """How a topic of that name is made; an internal one with as many replicas as can be had."""
        settings = self._settings.current
        most = min(max(1, len(self._cache.image.brokers)), MOST_REPLICAS)
        if name == OFFSETS_TOPIC:
            return _offsets(settings, most)
        if name == TRANSACTIONS_TOPIC:
            return _transactions(settings, most)
        return NewTopic(name, replication_factor=settings.get_int("default.replication.factor"))

    async def ensure(self, name: str) -> None:
        """Once this returns the topic is there; callers at the same time share its creation.

        Raises COORDINATOR_NOT_AVAILABLE where that is left to the controller of another broker: clients ask again.
        """
        if self._cache.image.topic(name) is not None:
            return
        creating = self._creating.get(name)
        if creating is None:
            creating = self._creating[name] = self._tasks.spawn(f"creating {name}", self._create(name))
            creating.add_done_callback(lambda _: self._creating.pop(name, None))
        # One caller's connection may go away: the others still wait for the same creation.
        problem = await asyncio.shield(creating)
        if problem is not None:
            raise problem.with_traceback(None)

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
