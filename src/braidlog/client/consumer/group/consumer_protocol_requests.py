"""The requests of a member of the consumer protocol (KIP-848): one ConsumerGroupHeartbeat after another."""

from __future__ import annotations

import logging
from typing import Final

from braidlog.client.cluster_view import ClusterView
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.group.consumer_protocol_member import ConsumerProtocolMember, HeartbeatResult
from braidlog.client.consumer.group.coordinator_client import CoordinatorClient
from braidlog.client.consumer.group.group_requests import GroupRequests
from braidlog.client.consumer.group.heartbeat_timer import HeartbeatTimer
from braidlog.client.errors import ClientError
from braidlog.core.protocol_errors import ProtocolError, UnsupportedVersionError
from braidlog.wire.generated.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

log = logging.getLogger("braidlog.client.group")

CONSUMER_GROUP_HEARTBEAT: Final = 68
_NEWEST: Final = 1


class ConsumerProtocolRequests(GroupRequests):
    def __init__(
        self,
        context: ConsumerContext,
        coordinator: CoordinatorClient,
        member: ConsumerProtocolMember,
        heartbeat_timer: HeartbeatTimer,
    ) -> None:
        super().__init__(context, coordinator, heartbeat_timer)
        self.heartbeats = 0
        self._member = member
        self._backoff = coordinator.backoff()
        # The member's incarnation when the request under way was made.
        self._sent_in = 0

    def _on_view(self, view: ClusterView) -> None:
        # Topics that were only known by their id may have a name now, and a pattern may match others.
        self._notify()

    @property
    def _is_active(self) -> bool:
        return self._member.is_active

    @property
    def _member_id(self) -> str:
        return self._member.member_id

    def _is_heartbeat_due(self, now: float) -> bool:
        return super()._is_heartbeat_due(now) or self._member.has_changes

    async def _send_heartbeat(self) -> None:
        self._heartbeat_timer.sent(self._now())
        self.heartbeats += 1
        try:
            answer = await self._coordinator.ask(
                CONSUMER_GROUP_HEARTBEAT, self._request, ConsumerGroupHeartbeatResponse, at_most=_NEWEST
            )
        except (ClientError, ProtocolError) as problem:
            with self.lock:
                self._member.no_answer()
            if not problem.retriable:
                self._fail(_with_advice(problem))
                return
            await self._pause()
            return
        self._backoff.reset()
        self._heartbeat_timer.heard(self._now())
        if answer.heartbeat_interval_ms > 0:
            self._heartbeat_timer.interval_s = answer.heartbeat_interval_ms / 1000.0
        try:
            with self.lock:
                if self._sent_in != self._member.incarnation:
                    # It left and joined again meanwhile: nothing was sent since the join.
                    self._heartbeat_requested.set()
                    return
                result = self._member.on_answer(answer)
        except ProtocolError as problem:
            self._fail(problem)
            return
        if result is not HeartbeatResult.RETRY_LATER:
            self._coordinator.recovered()
        if result is HeartbeatResult.CHANGED:
            self._notify()
        elif result is HeartbeatResult.RETRY:
            self._heartbeat_requested.set()
        elif result is HeartbeatResult.RETRY_LATER:
            self._coordinator.handle_error(answer.error_code)
            await self._pause()

    def _request(self, version: int) -> ConsumerGroupHeartbeatRequest:
        with self.lock:
            self._sent_in = self._member.incarnation
            return self._member.request(version)

    async def _pause(self) -> None:
        """Changes must not cut it short: the coordinator needs the time."""
        await self._backoff.wait()
        self._heartbeat_requested.set()

    def _fail(self, problem: Exception) -> None:
        with self.lock:
            self._member.fence()
            self.failure = problem
        self._notify()

    async def _leave_for_not_polling(self) -> None:
        with self.lock:
            request = self._member.leave_request()
            self._member.stop_for_not_polling()
        self._notify()
        await self._send_leave(request)

    async def leave(self, reason: str) -> None:
        with self.lock:
            request = self._member.leave_request()
            sends_leave = self._member.sends_leave
            self._member.out()
        if sends_leave and self._coordinator.node_id is not None:
            log.info("group %s: member %s leaves: %s", self._coordinator.group_id, self._member.member_id, reason)
            await self._send_leave(request)

    async def _send_leave(self, request: ConsumerGroupHeartbeatRequest) -> None:
        try:
            await self._coordinator.ask(
                CONSUMER_GROUP_HEARTBEAT, lambda _: request, ConsumerGroupHeartbeatResponse, at_most=_NEWEST
            )
        except (ClientError, ProtocolError) as problem:
            log.debug("group %s: could not send the leave request: %s", self._coordinator.group_id, problem)


def _with_advice(problem: Exception) -> Exception:
    if isinstance(problem, UnsupportedVersionError):
        return UnsupportedVersionError(
            f"{problem.message}: it does not speak the consumer group protocol (KIP-848); use group.protocol=classic"
        )
    return problem
