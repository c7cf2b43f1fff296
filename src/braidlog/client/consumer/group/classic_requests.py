"""The requests of a classic member, on the engine's thread; `classic_member` decides what is in them.

What needs the program's thread (callbacks, user-defined assignors) is left in `assignment`, `pending_assignment` and
`failure`, and the program's thread is woken.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from braidlog.client.cluster_view import ClusterView
from braidlog.client.consumer.assignors.embedded_protocol import read_assignment
from braidlog.client.consumer.assignors.interface import Assignment, Assignor, Subscriber, TopicMetadata
from braidlog.client.consumer.assignors.strategies import is_builtin
from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.group.classic_member import ClassicMember, ClassicMemberState, NextStep
from braidlog.client.consumer.group.coordinator_client import CoordinatorClient
from braidlog.client.consumer.group.group_requests import GroupRequests
from braidlog.client.consumer.group.heartbeat_timer import HeartbeatTimer
from braidlog.client.consumer.group.leader_assignment import (
    perform_assignment,
    subscribers,
    topic_metadata_of,
    topics_of,
)
from braidlog.client.errors import ClientError
from braidlog.core.protocol_errors import NONE, ProtocolError
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


@dataclass(slots=True)
class PendingAssignment:
    """The program's own assignor has to assign, in the program's thread."""

    assignor: Assignor
    members: list[Subscriber]
    topics: TopicMetadata
    done: asyncio.Future[list[tuple[str, bytes]]]

    def finish(self, assignments: list[tuple[str, bytes]], problem: Exception | None) -> None:
        """On the engine's thread; the join that waited may be over."""
        if self.done.done():
            return
        if problem is not None:
            self.done.set_exception(problem)
        else:
            self.done.set_result(assignments)


class ClassicRequests(GroupRequests):
    def __init__(
        self,
        context: ConsumerContext,
        coordinator: CoordinatorClient,
        member: ClassicMember,
        heartbeat_timer: HeartbeatTimer,
        assignors: Sequence[Assignor],
    ) -> None:
        super().__init__(context, coordinator, heartbeat_timer)
        self.assignment: Assignment | None = None
        self.pending_assignment: PendingAssignment | None = None
        self.rebalances = 0
        self._member = member
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._joining: asyncio.Task[None] | None = None
        # As the leader: what the assignment was made for, to notice when it changes.
        self._led: tuple[frozenset[str], TopicMetadata, bool] | None = None

    # Joining

    def begin_join(self, offers: list[tuple[str, bytes]]) -> None:
        self._led = None
        self._joining = self._tasks.spawn("join", self._join(offers))

    async def _join(self, offers: list[tuple[str, bytes]]) -> None:
        backoff = self._coordinator.backoff()
        try:
            while True:
                step = await self._join_once(offers)
                if step in (NextStep.DONE, NextStep.RESET):
                    return
                if step is NextStep.FIND_COORDINATOR:
                    self._coordinator.mark_unknown("it said that it is not the coordinator")
                if step in (NextStep.RETRY_LATER, NextStep.FIND_COORDINATOR):
                    await backoff.wait()
        except Exception as problem:
            if asyncio.current_task() is self._joining:
                self._fail(problem)
        finally:
            self._notify()

    def _is_over(self, state: ClassicMemberState) -> bool:
        """Whether the member went elsewhere while this join was waiting: out of the group, or into another join."""
        return asyncio.current_task() is not self._joining or not self._member.is_in(state)

    async def _join_once(self, offers: list[tuple[str, bytes]]) -> NextStep:
        with self.lock:
            if self._is_over(ClassicMemberState.JOINING):
                return NextStep.RESET
            request = self._member.join_request(offers)
        longest_s = max(self._coordinator.request_timeout_s, self._heartbeat_timer.max_poll_s + _GRACE_S)
        try:
            answer = await self._coordinator.ask(
                JOIN_GROUP, lambda _: request, JoinGroupResponse, at_most=_JOIN, timeout_s=longest_s, parks=True
            )
        except ClientError as problem:
            return self._again(problem)
        with self.lock:
            if self._is_over(ClassicMemberState.JOINING):
                return NextStep.RESET
            step = self._member.on_join(answer)
        if step is not NextStep.DONE:
            # Another round of the rebalance is no failure.
            self._coordinator.handle_error(answer.error_code)
            return step
        self._coordinator.recovered()
        self.rebalances += 1
        self._heartbeat_timer.begin(self._now())
        self._heartbeat_requested.set()
        log.info(
            "group %s: member %s is in generation %d%s, with %s", self._coordinator.group_id, answer.member_id,
            answer.generation_id, " as its leader" if self._member.leads else "", answer.protocol_name,
        )  # fmt: skip
        assignments = await self._assignments(answer)
        with self.lock:
            if not self._is_over(ClassicMemberState.ASSIGNING):
                self._member.assignment_done()
            if self._is_over(ClassicMemberState.SYNCING):
                return NextStep.RESET
            sync = self._member.sync_request(assignments)
        try:
            response = await self._coordinator.ask(
                SYNC_GROUP, lambda _: sync, SyncGroupResponse, at_most=_SYNC, timeout_s=longest_s, parks=True
            )
        except ClientError as problem:
            with self.lock:
                if self._is_over(ClassicMemberState.SYNCING):
                    return NextStep.RESET
                self._member.no_answer()
            return self._again(problem)
        assignment = _assignment_of(response)
        with self.lock:
            if self._is_over(ClassicMemberState.SYNCING):
                return NextStep.RESET
            step = self._member.on_sync(response)
            if step is NextStep.DONE:
                self.assignment = assignment
        self._coordinator.handle_error(response.error_code)
        return step

    def _again(self, problem: ClientError) -> NextStep:
        if not problem.retriable:
            raise problem
        log.debug("group %s: joins again: %s", self._coordinator.group_id, problem)
        return NextStep.RETRY_LATER

    async def _assignments(self, answer: JoinGroupResponse) -> list[tuple[str, bytes]]:
        """From the leader alone; none where the group keeps what it has (KIP-814)."""
        if not self._member.leads or not answer.members:
            subscription = self._context.subscription
            if subscription.group_topics != subscription.topics:
                # It led before: what only others read need not be known any more.
                subscription.group_subscribe(())
            return []
        members = subscribers(answer.members)
        topics = topics_of(members)
        await self._know(topics)
        with_racks = any(member.rack is not None for member in members)
        metadata = topic_metadata_of(self._context.metadata.view, topics, with_racks=with_racks)
        self._led = (topics, metadata, with_racks)
        if answer.skip_assignment:
            return []
        assignor = self._assignors.get(answer.protocol_name or "")
        if assignor is None:
            raise ClientError(f"the coordinator chose the assignor {answer.protocol_name}, which was not offered")
        if is_builtin(assignor):
            return perform_assignment(assignor, members, metadata)
        pending = PendingAssignment(assignor, members, metadata, asyncio.get_running_loop().create_future())
        with self.lock:
            self.pending_assignment = pending
        self._notify()
        return await pending.done

    async def _know(self, topics: frozenset[str]) -> None:
        """See that metadata has every topic that a member of the group reads, if they exist."""
        self._context.subscription.group_subscribe(topics)
        if not self._context.metadata.want(*sorted(topics)):
            return
        try:
            async with asyncio.timeout(self._coordinator.request_timeout_s):
                await self._context.metadata.refreshed()
        except (TimeoutError, ClientError, ProtocolError) as problem:
            log.warning("group %s: assigns with what is known of its topics: %s", self._coordinator.group_id, problem)

    def _on_view(self, view: ClusterView) -> None:
        if self._led is not None and self._member.leads:
            topics, metadata, with_racks = self._led
            if topic_metadata_of(view, topics, with_racks=with_racks) != metadata:
                with self.lock:
                    self._member.want_rejoin("topics of the group changed")
        # Also where the topics that a pattern matches may have changed.
        self._notify()

    def _fail(self, problem: Exception) -> None:
        with self.lock:
            self._member.reset(f"it cannot join: {problem}", forget_id=False)
            self.failure = problem
        self._notify()

    # Heartbeats

    @property
    def _is_active(self) -> bool:
        """While a join is under way the coordinator waits for no heartbeats."""
        return self._member.is_known and not self._member.is_in(ClassicMemberState.JOINING)

    @property
    def _member_id(self) -> str:
        return self._member.member_id

    async def _send_heartbeat(self) -> None:
        if self._heartbeat_timer.is_session_over(self._now()):
            self._coordinator.mark_unknown("it did not answer heartbeats for a whole session")
        with self.lock:
            sent = self._member.identity
            request = self._member.heartbeat_request()
        self._heartbeat_timer.sent(self._now())
        pause_s = self._coordinator.backoff().next_s()
        try:
            answer = await self._coordinator.ask(HEARTBEAT, lambda _: request, HeartbeatResponse, at_most=_HEARTBEAT)
        except (ClientError, ProtocolError) as problem:
            if not problem.retriable:
                self._fail(problem)
            self._heartbeat_timer.failed(self._now(), pause_s)
            return
        self._heartbeat_timer.heard(self._now())
        if answer.error_code == NONE:
            self._coordinator.recovered()
            return
        try:
            with self.lock:
                step = self._member.on_refusal(sent, answer.error_code)
        except ProtocolError as problem:
            self._fail(problem)
            return
        if step in (NextStep.FIND_COORDINATOR, NextStep.RETRY_LATER):
            self._coordinator.handle_error(answer.error_code)
            self._heartbeat_timer.failed(self._now(), pause_s)
        else:
            self._notify()

    # Leaving

    async def _leave_for_not_polling(self) -> None:
        await self.leave("poll() was not called for max.poll.interval.ms")
        self._notify()

    async def leave(self, reason: str) -> None:
        """Out at once for ourselves; the request is sent if the coordinator is known and the member is not static."""
        joining, self._joining = self._joining, None
        with self.lock:
            sends_leave = self._member.sends_leave and self._coordinator.node_id is not None
            requests = {version: self._member.leave_request(version, reason) for version in range(_LEAVE + 1)}
            self._member.reset(reason, forget_id=True)
            self.assignment = self.pending_assignment = None
        self._led = None
        try:
            if sends_leave:
                answer = await self._coordinator.ask(
                    LEAVE_GROUP, lambda version: requests[version], LeaveGroupResponse, at_most=_LEAVE
                )
                if answer.error_code != NONE:
                    log.debug("group %s: leaving was answered with %d", self._coordinator.group_id, answer.error_code)
        except (ClientError, ProtocolError) as problem:
            log.debug("group %s: could not send the leave request: %s", self._coordinator.group_id, problem)
        finally:
            # Only now: as long as its join is parked, the leave request takes another connection.
            if joining is not None:
                joining.cancel()


def _assignment_of(response: SyncGroupResponse) -> Assignment:
    try:
        return read_assignment(response.assignment) if response.error_code == NONE else Assignment()
    except MalformedError as problem:
        raise ClientError(f"the group's leader sent an assignment that no consumer can read ({problem})") from problem
