"""What the requests of either protocol share, on the engine's thread: the heartbeat loop, and failures for a poll."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from typing import Final

from braidlog.client.cluster_view import ClusterView
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.group.coordinator_client import CoordinatorClient
from braidlog.client.consumer.group.heartbeat_timer import HeartbeatTimer
from braidlog.core.tasks import Tasks

log = logging.getLogger("braidlog.client.group")

_RESTING_S: Final = 3600.0


class GroupRequests(ABC):
    def __init__(
        self, context: ConsumerContext, coordinator: CoordinatorClient, heartbeat_timer: HeartbeatTimer
    ) -> None:
        # Of the member's state and of what is left for the program's thread.
        self.lock = threading.Lock()
        # For a poll to raise.
        self.failure: Exception | None = None
        self._context = context
        self._coordinator = coordinator
        self._heartbeat_timer = heartbeat_timer
        self._notify = context.wakeup.notify
        self._tasks = Tasks(f"group {coordinator.group_id}")
        self._heartbeat_requested = asyncio.Event()

    def start(self) -> None:
        self._context.metadata.listeners.append(self._on_view)
        self._tasks.spawn("heartbeats", self._heartbeat_loop())

    async def stop(self) -> None:
        with contextlib.suppress(ValueError):
            self._context.metadata.listeners.remove(self._on_view)
        await self._tasks.close()
        self._coordinator.close()

    def request_heartbeat(self) -> None:
        """Something changed that the coordinator has to know."""
        self._heartbeat_requested.set()

    @abstractmethod
    async def leave(self, reason: str) -> None:
        """Out at once for ourselves; the request is sent if the coordinator is known."""

    @abstractmethod
    def _on_view(self, view: ClusterView) -> None:
        """Metadata changed."""

    # Heartbeats

    async def _heartbeat_loop(self) -> None:
        timer = self._heartbeat_timer
        while True:
            wait_s = timer.wait_s(self._now()) if self._is_active else _RESTING_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._heartbeat_requested.wait()
            self._heartbeat_requested.clear()
            if not self._is_active:
                continue
            now = self._now()
            if timer.is_poll_overdue(now):
                log.warning(
                    "group %s: member %s leaves it, since poll() was not called for %g s (max.poll.interval.ms): "
                    "handle fewer records at a time (max.poll.records), or allow more time. Its partitions go to "
                    "others, and the next poll joins again",
                    self._coordinator.group_id, self._member_id, timer.max_poll_s,
                )  # fmt: skip
                await self._leave_for_not_polling()
            elif self._is_heartbeat_due(now):
                await self._send_heartbeat()

    @property
    @abstractmethod
    def _is_active(self) -> bool:
        """Whether the coordinator expects heartbeats."""

    @property
    @abstractmethod
    def _member_id(self) -> str: ...

    def _is_heartbeat_due(self, now: float) -> bool:
        return now >= self._heartbeat_timer.due_at()

    @abstractmethod
    async def _send_heartbeat(self) -> None: ...

    @abstractmethod
    async def _leave_for_not_polling(self) -> None: ...

    def _now(self) -> float:
        return self._context.clock.monotonic()
