"""The requests of a member of the consumer protocol (KIP-848): one ConsumerGroupHeartbeat after another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import Final

from braidlog.client.cluster_view import ClusterView
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.group.consumer_protocol_member import ConsumerProtocolMember, HeartbeatResult
from braidlog.client.consumer.group.coordinator_client import CoordinatorClient
from braidlog.client.consumer.group.heartbeat_timer import HeartbeatTimer
from braidlog.client.consumer.group.member import warn_not_polling
from braidlog.client.errors import ClientError
from braidlog.core.protocol_errors import ProtocolError, UnsupportedVersionError
from braidlog.core.tasks import Tasks
from braidlog.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

log = logging.getLogger("braidlog.client.group")

CONSUMER_GROUP_HEARTBEAT: Final = 68
_NEWEST: Final = 1
_RESTING_S: Final = 3600.0


class ConsumerProtocolRequests:
    def __init__(
        self,
        context: ConsumerContext,
        coordinator: CoordinatorClient,
        member: ConsumerProtocolMember,
        heartbeat_timer: HeartbeatTimer,
    ) -> None:
        # Of `member` and of what is left for the program's thread.
        self.lock = threading.Lock()
        self.member = member
        self.heartbeat_timer = heartbeat_timer
        self.coordinator = coordinator
        self.failure: Exception | None = None
        self.heartbeats = 0
        self._context = context
        self._notify = context.wakeup.notify
        self._tasks = Tasks(f"group {coordinator.group_id}")
        self._heartbeat_requested = asyncio.Event()
        self._backoff = coordinator.backoff()
        # The member's incarnation when the request under way was made.
        self._sent_in = 0

    def start(self) -> None:
        self._context.metadata.listeners.append(self._on_view)
        self._tasks.spawn("heartbeats", self._heartbeat_loop())

    async def stop(self) -> None:
        with contextlib.suppress(ValueError):
            self._context.metadata.listeners.remove(self._on_view)
        await self._tasks.close()
        self.coordinator.close()

    def request_heartbeat(self) -> None:
        """Something changed that the coordinator has to know."""
        self._heartbeat_requested.set()

    def _on_view(self, view: ClusterView) -> None:
        # Topics that were only known by their id may have a name now, and a pattern may match others.
        self._notify()

    async def _heartbeat_loop(self) -> None:
        while True:
            await self._wait()
            now = self._now()
            if not self.member.is_active:
                continue
            if self.heartbeat_timer.is_poll_overdue(now):
                await self._leave_for_not_polling()
            elif now >= self.heartbeat_timer.due_at() or self.member.has_changes:
                await self._send()

    async def _wait(self) -> None:
        wait_s = self.heartbeat_timer.wait_s(self._now()) if self.member.is_active else _RESTING_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._heartbeat_requested.wait()
        self._heartbeat_requested.clear()

    async def _send(self) -> None:
        self.heartbeat_timer.sent(self._now())
        self.heartbeats += 1
        try:
            answer = await self.coordinator.ask(
                CONSUMER_GROUP_HEARTBEAT, self._request, ConsumerGroupHeartbeatResponse, at_most=_NEWEST
            )
        except (ClientError, ProtocolError) as problem:
            with self.lock:
                self.member.no_answer()
            if not problem.retriable:
                self._fail(_with_advice(problem))
                return
            await self._pause()
            return
        self._backoff.reset()
        self.heartbeat_timer.heard(self._now())
        if answer.heartbeat_interval_ms > 0:
            self.heartbeat_timer.interval_s = answer.heartbeat_interval_ms / 1000.0
        try:
            with self.lock:
                if self._sent_in != self.member.incarnation:
                    # It left and joined again meanwhile: nothing was sent since the join.
                    self._heartbeat_requested.set()
                    return
                result = self.member.on_answer(answer)
        except ProtocolError as problem:
            self._fail(problem)
            return
        if result is not HeartbeatResult.RETRY_LATER:
            self.coordinator.recovered()
        if result is HeartbeatResult.CHANGED:
            self._notify()
        elif result is HeartbeatResult.RETRY:
            self._heartbeat_requested.set()
        elif result is HeartbeatResult.RETRY_LATER:
            self.coordinator.handle_error(answer.error_code)
            await self._pause()

    def _request(self, version: int) -> ConsumerGroupHeartbeatRequest:
        with self.lock:
            self._sent_in = self.member.incarnation
            return self.member.request(version)

    async def _pause(self) -> None:
        """Changes must not cut it short: the coordinator needs the time."""
        await self._backoff.wait()
        self._heartbeat_requested.set()

    def _fail(self, problem: Exception) -> None:
        with self.lock:
            self.member.fence()
            self.failure = problem
        self._notify()

    async def _leave_for_not_polling(self) -> None:
        warn_not_polling(self.coordinator.group_id, self.member.member_id, self.heartbeat_timer.max_poll_s)
        with self.lock:
            request = self.member.leave_request()
            self.member.stop_for_not_polling()
        self._notify()
        await self._send_leave(request)

    async def leave(self, reason: str) -> None:
        with self.lock:
            request = self.member.leave_request()
            sends_leave = self.member.sends_leave
            self.member.out()
        if sends_leave and self.coordinator.node_id is not None:
            log.info("group %s: member %s leaves: %s", self.coordinator.group_id, self.member.member_id, reason)
            await self._send_leave(request)

    async def _send_leave(self, request: ConsumerGroupHeartbeatRequest) -> None:
        try:
            await self.coordinator.ask(
                CONSUMER_GROUP_HEARTBEAT, lambda _: request, ConsumerGroupHeartbeatResponse, at_most=_NEWEST
            )
        except (ClientError, ProtocolError) as problem:
            log.debug("group %s: could not send the leave request: %s", self.coordinator.group_id, problem)

    def _now(self) -> float:
        return self._context.clock.monotonic()


def _with_advice(problem: Exception) -> Exception:
    if isinstance(problem, UnsupportedVersionError):
        return UnsupportedVersionError(
            f"{problem.message}: it does not speak the consumer group protocol (KIP-848); use group.protocol=classic"
        )
    return problem
