"""The way of control requests into this broker: its own controller calls it, and so do the handlers of requests
that come from the controller of another broker.

A controller has one connection to a broker at a time, and sends again over the next one what the last one did not
answer. What still comes over an earlier connection then is late: a topic deleted meanwhile would be back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Protocol, assert_never

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
from braidlog.core.protocol_errors import NONE, StaleControllerEpochError
from braidlog.core.tasks import Tasks

log = logging.getLogger("braidlog.broker")


class ControllerConnection(Protocol):
    """What a request came over; of two the one with the greater number was made later."""

    number: int

    def close(self, reason: str) -> None: ...


class LocalControlChannel:
    def __init__(self, replica_manager: ReplicaManager, cache: MetadataCache) -> None:
        self._replica_manager = replica_manager
        self._cache = cache
        # Each lets others run in between: those of an old controller and of a new one must not be mixed.
        self._one_at_a_time = asyncio.Lock()
        self._tasks = Tasks("control requests")
        # Of the latest controller that was obeyed: its epoch, and its latest connection.
        self._latest = (0, 0)

    async def send(self, request: ControlRequest) -> ControlResponse:
        """From this broker's own controller. Should that be dropped meanwhile, what was begun is done to its end."""
        task: asyncio.Task[ControlResponse] = self._tasks.spawn(type(request).__name__, self._obey_in_turn(request))
        return await asyncio.shield(task)

    async def _obey_in_turn(self, request: ControlRequest) -> ControlResponse:
        async with self._one_at_a_time:
            return await self._obey(request)

    async def receive(self, request: ControlRequest, connection: ControllerConnection) -> ControlResponse:
        """From the controller of another broker.

        A connection that brings something late is closed: nobody waits for an answer there. Should a controller still
        use it, it makes another, which is the latest then.
        """
        async with self._one_at_a_time:
            came = (request.controller_epoch, connection.number)
            if came[0] == self._latest[0] and came < self._latest:
                log.warning(
                    "a %s of controller %d came late, over a connection that it had given up, and is ignored",
                    type(request).__name__,
                    request.controller_id,
                )
                connection.close("the controller has a later connection")
                return ControlResponse(StaleControllerEpochError.code)
            response = await self._obey(request)
            if response.error == NONE:
                self._latest = max(self._latest, came)
            return response

    async def _obey(self, request: ControlRequest) -> ControlResponse:
        if isinstance(request, LeaderAndIsr):
            return await self._replica_manager.become_leader_or_follower(request)
        if isinstance(request, UpdateMetadata):
            return await self._cache.update(request)
        if isinstance(request, StopReplica):
            return await self._replica_manager.stop_replicas(request)
        assert_never(request)

    async def forget(self, topics: Sequence[TopicImage], overrides: Sequence[str]) -> None:
        """Topics that were deleted while this broker was not registered: no controller tells it of them."""
        async with self._one_at_a_time:
            await self._cache.forget(topics, overrides)

    async def reach(self) -> None:
        """Nothing is between."""

    def when_broken(self, callback: Callable[[], None]) -> None:
        """Nothing that could break."""

    async def close(self) -> None:
        """Nothing to close: the broker lives longer than the controller that uses this."""

    async def stop(self) -> None:
        """With the broker."""
        await self._tasks.close()
