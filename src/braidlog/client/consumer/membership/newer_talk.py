"""Speaks for a member of the newer protocol on the engine's thread: one heartbeat after another."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from typing import Final

from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.coordinator_link import CoordinatorLink
from braidlog.client.consumer.membership.heartbeats import Heartbeats
from braidlog.client.consumer.membership.newer import Heard, NewerMember
from braidlog.client.errors import ClientError
from braidlog.client.view import ClusterView
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


class NewerTalk:
    def __init__(self, context: ConsumerContext, link: CoordinatorLink, member: NewerMember, beats: Heartbeats) -> None:
        # Of `member` and of what is left for the program's thread.
        self.lock = threading.Lock()
        self.member = member
        self.beats = beats
        self.link = link
        self.failure: Exception | None = None
        self.heartbeats = 0
        self._context = context
        self._ring = context.doorbell.ring
        self._tasks = Tasks(f"group {link.group_id}")
        self._poked = asyncio.Event()
        self._pauses = link.pauses()
        # In which life the question under way was asked.
        self._asked_in = 0

    def start(self) -> None:
        self._context.metadata.listeners.append(self._on_view)
        self._tasks.spawn("heartbeats", self._beat())

    async def stop(self) -> None:
        with contextlib.suppress(ValueError):
            self._context.metadata.listeners.remove(self._on_view)
        await self._tasks.close()
        self.link.close()

    def poke(self) -> None:
        """There is news for the coordinator."""
        self._poked.set()

    def _on_view(self, view: ClusterView) -> None:
        # Topics that were only known by their id may have a name now, and a pattern may match others.
        self._ring()

    async def _beat(self) -> None:
        while True:
            await self._wait()
            now = self._now()
            if not self.member.speaks:
                continue
            if self.beats.is_poll_overdue(now):
                await self._leave_for_not_polling()
            elif now >= self.beats.due_at() or self.member.has_news:
                await self._send()

    async def _wait(self) -> None:
        wait_s = self.beats.wait_s(self._now()) if self.member.speaks else _RESTING_S
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._poked.wait()
        self._poked.clear()

    async def _send(self) -> None:
        self.beats.sent(self._now())
        self.heartbeats += 1
        try:
            answer = await self.link.ask(
                CONSUMER_GROUP_HEARTBEAT, self._request, ConsumerGroupHeartbeatResponse, at_most=_NEWEST
            )
        except (ClientError, ProtocolError) as problem:
            with self.lock:
                self.member.no_answer()
            if not problem.retriable:
                self._fail(_told(problem))
                return
            await self._pause()
            return
        self._pauses.reset()
        self.beats.heard(self._now())
        if answer.heartbeat_interval_ms > 0:
            self.beats.interval_s = answer.heartbeat_interval_ms / 1000.0
        try:
            with self.lock:
                if self._asked_in != self.member.life:
                    # Left and come back meanwhile: nothing of the new life was said yet.
                    self._poked.set()
                    return
                heard = self.member.on_answer(answer)
        except ProtocolError as problem:
            self._fail(problem)
            return
        if heard is not Heard.LATER:
            self.link.works()
        if heard is Heard.NEWS:
            self._ring()
        elif heard is Heard.AGAIN:
            self._poked.set()
        elif heard is Heard.LATER:
            self.link.heed(answer.error_code)
            await self._pause()

    def _request(self, version: int) -> ConsumerGroupHeartbeatRequest:
        with self.lock:
            self._asked_in = self.member.life
            return self.member.request(version)

    async def _pause(self) -> None:
        """News must not break it short: the coordinator needs the time."""
        await self._pauses.wait()
        self._poked.set()

    def _fail(self, problem: Exception) -> None:
        with self.lock:
            self.member.fence()
            self.failure = problem
        self._ring()

    async def _leave_for_not_polling(self) -> None:
        log.warning(
            "group %s: member %s leaves it, since poll() was not called for %g s (max.poll.interval.ms): handle fewer "
            "records at a time (max.poll.records), or allow more time. Its partitions go to others, and the next "
            "poll joins again", self.link.group_id, self.member.member_id, self.beats.max_poll_s,
        )  # fmt: skip
        with self.lock:
            request = self.member.goodbye()
            self.member.stop_for_not_polling()
        self._ring()
        await self._say_goodbye(request)

    async def leave(self, reason: str) -> None:
        with self.lock:
            request = self.member.goodbye()
            goes = self.member.says_goodbye
            self.member.out()
        if goes and self.link.node_id is not None:
            log.info("group %s: member %s leaves: %s", self.link.group_id, self.member.member_id, reason)
            await self._say_goodbye(request)

    async def _say_goodbye(self, request: ConsumerGroupHeartbeatRequest) -> None:
        try:
            await self.link.ask(
                CONSUMER_GROUP_HEARTBEAT, lambda _: request, ConsumerGroupHeartbeatResponse, at_most=_NEWEST
            )
        except (ClientError, ProtocolError) as problem:
            log.debug("group %s: could not say goodbye: %s", self.link.group_id, problem)

    def _now(self) -> float:
        return self._context.clock.monotonic()


def _told(problem: Exception) -> Exception:
    if isinstance(problem, UnsupportedVersionError):
        return UnsupportedVersionError(
            f"{problem.message}: it does not speak the newer group protocol; use group.protocol=classic"
        )
    return problem
