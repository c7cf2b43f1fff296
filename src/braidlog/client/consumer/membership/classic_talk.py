"""Speaks for a classic member on the engine's thread: joins, syncs, heartbeats, leaves; what to say is `classic`'s.

What needs the program's thread (callbacks, user-defined assignors) is left in `share`, `order` and `failure`, and the
bell rings.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from braidlog.client.consumer.assignors.choosing import is_ours
from braidlog.client.consumer.assignors.interface import Assignor, Share, Subscriber, TopicFacts
from braidlog.client.consumer.assignors.layouts import read_assignment
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.coordinator_link import CoordinatorLink
from braidlog.client.consumer.membership.classic import ClassicMember, Next
from braidlog.client.consumer.membership.heartbeats import Heartbeats
from braidlog.client.consumer.membership.leading import facts_of, share_out, subscribers, topics_of
from braidlog.client.consumer.membership.states import Classic
from braidlog.client.errors import ClientError
from braidlog.client.view import ClusterView
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.core.tasks import Tasks
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.heartbeat import HeartbeatResponse
from braidlog.wire.generated.join_group import JoinGroupResponse
from braidlog.wire.generated.leave_group import LeaveGroupResponse
from braidlog.wire.generated.sync_group import SyncGroupResponse

log = logging.getLogger("braidlog.client.group")

JOIN_GROUP: Final = 11
HEARTBEAT: Final = 12
LEAVE_GROUP: Final = 13
SYNC_GROUP: Final = 14
# The newest versions that are known here.
_JOIN, _HEARTBEAT, _LEAVE, _SYNC = 9, 4, 5, 5
# A join is answered when the slowest member has come, at the latest after the rebalance timeout; and a little.
_GRACE_S: Final = 5.0
_RESTING_S: Final = 3600.0


@dataclass(slots=True)
class ShareOrder:
    """The program's own assignor has to share out, in the program's thread."""

    assignor: Assignor
    members: list[Subscriber]
    facts: TopicFacts
    done: asyncio.Future[list[tuple[str, bytes]]]

    def finish(self, shares: list[tuple[str, bytes]], problem: Exception | None) -> None:
        """On the engine's thread; who waited may have gone."""
        if self.done.done():
            return
        if problem is not None:
            self.done.set_exception(problem)
        else:
            self.done.set_result(shares)


class ClassicTalk:
    def __init__(
        self,
        context: ConsumerContext,
        link: CoordinatorLink,
        member: ClassicMember,
        beats: Heartbeats,
        assignors: Sequence[Assignor],
    ) -> None:
        # Of `member` and of what is left for the program's thread.
        self.lock = threading.Lock()
        self.member = member
        self.beats = beats
        self.link = link
        self.share: Share | None = None
        self.order: ShareOrder | None = None
        self.failure: Exception | None = None
        self.rebalances = 0
        self._context = context
        self._ring = context.doorbell.ring
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._tasks = Tasks(f"group {link.group_id}")
        self._joining: asyncio.Task[None] | None = None
        self._poked = asyncio.Event()
        # As the leader: what was shared out, to notice when it changes.
        self._led: tuple[frozenset[str], TopicFacts, bool] | None = None

    def start(self) -> None:
        self._context.metadata.listeners.append(self._on_view)
        self._tasks.spawn("heartbeats", self._beat())

    async def stop(self) -> None:
        with contextlib.suppress(ValueError):
            self._context.metadata.listeners.remove(self._on_view)
        await self._tasks.close()
        self.link.close()

    # Joining

    def begin_join(self, offers: list[tuple[str, bytes]]) -> None:
        self._led = None
        self._joining = self._tasks.spawn("join", self._join(offers))

    async def _join(self, offers: list[tuple[str, bytes]]) -> None:
        pauses = self.link.pauses()
        try:
            while True:
                step = await self._join_once(offers)
                if step in (Next.GO_ON, Next.RESET):
                    return
                if step is Next.ELSEWHERE:
                    self.link.lost("it said that it is not the coordinator")
                if step in (Next.LATER, Next.ELSEWHERE):
                    await pauses.wait()
        except Exception as problem:
            if asyncio.current_task() is self._joining:
                self._fail(problem)
        finally:
            self._ring()

    def _is_over(self, state: Classic) -> bool:
        """Whether the member went elsewhere while this join was waiting: out of the group, or into another join."""
        return asyncio.current_task() is not self._joining or not self.member.is_in(state)

    async def _join_once(self, offers: list[tuple[str, bytes]]) -> Next:
        with self.lock:
            if self._is_over(Classic.JOINING):
                return Next.RESET
            request = self.member.join_request(offers)
        longest_s = max(self.link.request_timeout_s, self.beats.max_poll_s + _GRACE_S)
        try:
            answer = await self.link.ask(
                JOIN_GROUP, lambda _: request, JoinGroupResponse, at_most=_JOIN, timeout_s=longest_s, parks=True
            )
        except ClientError as problem:
            return self._again(problem)
        with self.lock:
            if self._is_over(Classic.JOINING):
                return Next.RESET
            step = self.member.on_join(answer)
        if step is not Next.GO_ON:
            # Another round of the rebalance is no failure.
            self.link.heed(answer.error_code)
            return step
        self.link.works()
        self.rebalances += 1
        self.beats.begin(self._now())
        self._poked.set()
        log.info(
            "group %s: member %s is in generation %d%s, with %s", self.link.group_id, answer.member_id,
            answer.generation_id, " as its leader" if self.member.leads else "", answer.protocol_name,
        )  # fmt: skip
        shares = await self._shares(answer)
        with self.lock:
            if not self._is_over(Classic.ASSIGNING):
                self.member.shares_are_out()
            if self._is_over(Classic.SYNCING):
                return Next.RESET
            sync = self.member.sync_request(shares)
        try:
            response = await self.link.ask(
                SYNC_GROUP, lambda _: sync, SyncGroupResponse, at_most=_SYNC, timeout_s=longest_s, parks=True
            )
        except ClientError as problem:
            with self.lock:
                if self._is_over(Classic.SYNCING):
                    return Next.RESET
                self.member.no_answer()
            return self._again(problem)
        share = _share_of(response)
        with self.lock:
            if self._is_over(Classic.SYNCING):
                return Next.RESET
            step = self.member.on_sync(response)
            if step is Next.GO_ON:
                self.share = share
        self.link.heed(response.error_code)
        return step

    def _again(self, problem: ClientError) -> Next:
        if not problem.retriable:
            raise problem
        log.debug("group %s: joins again: %s", self.link.group_id, problem)
        return Next.LATER

    async def _shares(self, answer: JoinGroupResponse) -> list[tuple[str, bytes]]:
        """What the leader answers; nothing from anybody else, nor where the group keeps what it has (KIP-814)."""
        if not self.member.leads or not answer.members:
            subscription = self._context.subscription
            if subscription.group_topics != subscription.topics:
                # Led before: what only others read need not be known any more.
                subscription.group_subscribe(())
            return []
        members = subscribers(answer.members)
        topics = topics_of(members)
        await self._know(topics)
        with_racks = any(member.rack is not None for member in members)
        facts = facts_of(self._context.metadata.view, topics, with_racks=with_racks)
        self._led = (topics, facts, with_racks)
        if answer.skip_assignment:
            return []
        assignor = self._assignors.get(answer.protocol_name or "")
        if assignor is None:
            raise ClientError(f"the coordinator chose the assignor {answer.protocol_name}, which was not offered")
        if is_ours(assignor):
            return share_out(assignor, members, facts)
        order = ShareOrder(assignor, members, facts, asyncio.get_running_loop().create_future())
        with self.lock:
            self.order = order
        self._ring()
        return await order.done

    async def _know(self, topics: frozenset[str]) -> None:
        """See that metadata tells of every topic that somebody in the group reads, if they exist."""
        self._context.subscription.group_subscribe(topics)
        if not self._context.metadata.want(*topics):
            return
        try:
            async with asyncio.timeout(self.link.request_timeout_s):
                await self._context.metadata.refreshed()
        except (TimeoutError, ClientError, ProtocolError) as problem:
            log.warning("group %s: shares out with what is known of its topics: %s", self.link.group_id, problem)

    def _on_view(self, view: ClusterView) -> None:
        if self._led is not None and self.member.leads:
            topics, facts, with_racks = self._led
            if facts_of(view, topics, with_racks=with_racks) != facts:
                with self.lock:
                    self.member.want_rejoin("topics of the group changed")
        # Also where the topics that a pattern matches may have changed.
        self._ring()

    def _fail(self, problem: Exception) -> None:
        with self.lock:
            self.member.reset(f"it cannot join: {problem}", forget_id=False)
            self.failure = problem
        self._ring()

    # Being heard of

    async def _beat(self) -> None:
        while True:
            wait_s = self.beats.wait_s(self._now()) if self._beats_now() else _RESTING_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._poked.wait()
            self._poked.clear()
            now = self._now()
            if not self._beats_now():
                continue
            if self.beats.is_poll_overdue(now):
                await self._leave_for_not_polling()
            elif now >= self.beats.due_at():
                if self.beats.is_session_over(now):
                    self.link.lost("it did not answer heartbeats for a whole session")
                await self._send_heartbeat()

    def _beats_now(self) -> bool:
        """While a join is under way the join itself is the sign of life."""
        return self.member.is_known and not self.member.is_in(Classic.JOINING)

    async def _send_heartbeat(self) -> None:
        with self.lock:
            sent = self.member.identity
            request = self.member.heartbeat_request()
        self.beats.sent(self._now())
        pause_s = self.link.pauses().next_s()
        try:
            answer = await self.link.ask(HEARTBEAT, lambda _: request, HeartbeatResponse, at_most=_HEARTBEAT)
        except (ClientError, ProtocolError) as problem:
            if not problem.retriable:
                self._fail(problem)
            self.beats.failed(self._now(), pause_s)
            return
        self.beats.heard(self._now())
        if answer.error_code == NONE:
            self.link.works()
            return
        try:
            with self.lock:
                step = self.member.on_refusal(sent, answer.error_code)
        except ProtocolError as problem:
            self._fail(problem)
            return
        if step in (Next.ELSEWHERE, Next.LATER):
            self.link.heed(answer.error_code)
            self.beats.failed(self._now(), pause_s)
        else:
            self._ring()

    # Leaving

    async def _leave_for_not_polling(self) -> None:
        log.warning(
            "group %s: member %s leaves it, since poll() was not called for %g s (max.poll.interval.ms): handle fewer "
            "records at a time (max.poll.records), or allow more time. Its partitions go to others, and the next "
            "poll joins again", self.link.group_id, self.member.member_id, self.beats.max_poll_s,
        )  # fmt: skip
        await self.leave("poll() was not called for max.poll.interval.ms")
        self._ring()

    async def leave(self, reason: str) -> None:
        """Out at once for ourselves; the coordinator is told if it is known, and if the member is not static."""
        joining, self._joining = self._joining, None
        with self.lock:
            goodbye = self.member.says_goodbye and self.link.node_id is not None
            requests = {version: self.member.leave_request(version, reason) for version in range(_LEAVE + 1)}
            self.member.reset(reason, forget_id=True)
            self.share = self.order = None
        self._led = None
        try:
            if goodbye:
                answer = await self.link.ask(
                    LEAVE_GROUP, lambda version: requests[version], LeaveGroupResponse, at_most=_LEAVE
                )
                if answer.error_code != NONE:
                    log.debug("group %s: leaving was answered with %d", self.link.group_id, answer.error_code)
        except (ClientError, ProtocolError) as problem:
            log.debug("group %s: could not say goodbye: %s", self.link.group_id, problem)
        finally:
            # Only now: as long as its join is parked, the goodbye takes another way.
            if joining is not None:
                joining.cancel()

    def _now(self) -> float:
        return self._context.clock.monotonic()


def _share_of(response: SyncGroupResponse) -> Share:
    try:
        return read_assignment(response.assignment) if response.error_code == NONE else Share()
    except MalformedError as problem:
        raise ClientError(f"the group's leader gave a share that no consumer can read ({problem})") from problem
