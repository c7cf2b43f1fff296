"""The way of control requests into this broker: its own controller calls it, and so do the handlers of requests
that come from the controller of another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, assert_never

from braidlog.broker.metadata_cache import MetadataCache
from braidlog.broker.replica_manager import ReplicaManager
from braidlog.cluster.control_requests import (
    ANY_BROKER_EPOCH,
    EPOCH_DURING_DELETE,
    LEADER_DURING_DELETE,
    ControlChannel,
    ControlRequest,
    ControlResponse,
    LeaderAndIsr,
    LeaderAndIsrPartition,
    MetadataPartition,
    StopReplica,
    StopReplicaPartition,
    UpdateMetadata,
)
from braidlog.cluster.image import ClusterImage, ImageDelta, TopicImage

# There is one controller, in this process.
_CONTROLLER_EPOCH: Final = 0


class LocalControlChannel:
    def __init__(self, replica_manager: ReplicaManager, cache: MetadataCache) -> None:
        self._replica_manager = replica_manager
        self._cache = cache
        # Each lets others run in between: those of an old controller and of a new one must not be mixed.
        self._one_at_a_time = asyncio.Lock()

    async def send(self, request: ControlRequest) -> ControlResponse:
        async with self._one_at_a_time:
            if isinstance(request, LeaderAndIsr):
                return await self._replica_manager.become_leader_or_follower(request)
            if isinstance(request, UpdateMetadata):
                return await self._cache.update(request)
            if isinstance(request, StopReplica):
                return await self._replica_manager.stop_replicas(request)
            assert_never(request)

    async def close(self) -> None:
        """Nothing to close: the broker lives longer than the controller that uses this."""


class ControllerAdapter:
    """Makes control requests of what the controller publishes, until it sends them itself.

    Listens to the controller's image; the first one has the partitions of the time before this start.
    """

    def __init__(self, channel: ControlChannel) -> None:
        self._channel = channel
        self._first_image_sent = False

    async def image_changed(self, image: ClusterImage, delta: ImageDelta) -> None:
        if delta.topics_deleted:
            await self._delete(image, delta.topics_deleted)
        changed = [
            MetadataPartition(topic.name, topic.topic_id, index, info)
            for topic in delta.topics_created
            for index, info in enumerate(topic.partitions)
        ]
        for old, new in delta.topics_changed:
            before = len(old.partitions)
            changed += [
                MetadataPartition(new.name, new.topic_id, index, info)
                for index, info in enumerate(new.partitions)
                if index >= before or old.partitions[index] != info
            ]
        if changed:
            states = [LeaderAndIsrPartition(*each, is_new=self._first_image_sent) for each in changed]
            request = LeaderAndIsr(image.controller_id, _CONTROLLER_EPOCH, ANY_BROKER_EPOCH, states, image.brokers)
            await self._channel.send(request)
        self._first_image_sent = True
        await self._update(image, changed)

    async def _delete(self, image: ClusterImage, topics: Sequence[TopicImage]) -> None:
        named = [(topic, index, info) for topic in topics for index, info in enumerate(topic.partitions)]
        gone = [
            MetadataPartition(topic.name, topic.topic_id, index, info._replace(leader=LEADER_DURING_DELETE))
            for topic, index, info in named
        ]
        await self._update(image, gone)
        stopped = [StopReplicaPartition(topic.name, index, EPOCH_DURING_DELETE, True) for topic, index, _ in named]
        await self._channel.send(StopReplica(image.controller_id, _CONTROLLER_EPOCH, ANY_BROKER_EPOCH, stopped))

    async def _update(self, image: ClusterImage, partitions: Sequence[MetadataPartition]) -> None:
        request = UpdateMetadata(image.controller_id, _CONTROLLER_EPOCH, ANY_BROKER_EPOCH, image.brokers, partitions)
        await self._channel.send(request)
