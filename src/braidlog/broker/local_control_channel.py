"""The way of control requests into this broker: its own controller calls it, and so do the handlers of requests
that come from the controller of another broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import assert_never

from braidlog.broker.metadata_cache import MetadataCache
from braidlog.broker.replica_manager import ReplicaManager
from braidlog.cluster.control_requests import (
    ControlRequest,
    ControlResponse,
    LeaderAndIsr,
    StopReplica,
    UpdateMetadata,
)
from braidlog.cluster.image import TopicImage


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

    async def forget(self, topics: Sequence[TopicImage]) -> None:
        """Topics that were deleted while this broker was not registered: no controller tells it of them."""
        async with self._one_at_a_time:
            await self._cache.forget(topics)

    async def close(self) -> None:
        """Nothing to close: the broker lives longer than the controller that uses this."""
