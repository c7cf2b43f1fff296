"""A consumer's membership in its group, over either protocol."""

from __future__ import annotations

import logging
from copy import copy
from typing import Final, Protocol

from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.group.coordinator_client import CoordinatorClient
from braidlog.client.consumer.group.group_requests import GroupRequests
from braidlog.client.consumer.group.heartbeat_timer import HeartbeatTimer
from braidlog.client.consumer.group.member import NO_MEMBER, GroupIdentity
from braidlog.client.consumer.group.reconciliation import AutoCommit, Reconciliation
from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata
from braidlog.client.errors import ClientError
from braidlog.core.protocol_errors import FencedInstanceIdError, ProtocolError

# To be out for ourselves, and to send the leave request if the coordinator is known.
_LEAVE_S: Final = 0.2

log = logging.getLogger("braidlog.client.group")


class GroupProtocol(Protocol):
    """What a protocol does in the program's thread, inside `poll`; where nothing else is said."""

    @property
    def requests(self) -> GroupRequests: ...

    @property
    def heartbeat_timer(self) -> HeartbeatTimer: ...

    @property
    def is_member(self) -> bool:
        """Whether the coordinator counts this member in: what it has is not lost."""
        ...

    @property
    def is_settled(self) -> bool:
        """No rebalance under way, and no listener to call."""
        ...

    @property
    def identity(self) -> GroupIdentity: ...

    def step(self) -> bool:
        """The next thing to do; False when there is nothing, or the coordinator has to answer first."""
        ...

    def on_failure(self) -> None:
        """The membership has failed: what the consumer has is lost."""
        ...

    def on_leave(self) -> None:
        """Forget what was joined with."""
        ...

    def enforce_rebalance(self, reason: str) -> None: ...

    def metrics(self) -> dict[str, float]: ...

    def commit_identity(self) -> GroupIdentity:
        """From any thread; raises where the group would refuse a commit now."""
        ...

    def on_commit_refused(self, sent: GroupIdentity, code: int) -> Exception | None:
        """On the engine's thread: a commit was refused for its sender; the error to raise, none to try again."""
        ...


class Membership:
    """Methods are for the program's thread where nothing else is said."""

    def __init__(
        self,
        context: ConsumerContext,
        coordinator: CoordinatorClient,
        reconciliation: Reconciliation,
        protocol: GroupProtocol,
    ) -> None:
        self.coordinator = coordinator
        self._context = context
        self._subscription = context.subscription
        self._instance_id = context.settings.optional_text("group.instance.id")
        self._reconciliation = reconciliation
        self._protocol = protocol
        self._requests = protocol.requests
        self._heartbeat_timer = protocol.heartbeat_timer
        self._is_started = False
        self._is_closed = False
        self._fatal: FencedInstanceIdError | None = None

    def use_auto_commit(self, commits: AutoCommit) -> None:
        """Rebalances commit with these from now on."""
        self._reconciliation.commits = commits

    # Inside poll

    def advance(self) -> None:
        """From every poll: notes that the program polls, and does what has to be done in its thread. Never waits."""
        if self._is_closed:
            return
        self._heartbeat_timer.polled(self._now())
        if not self._is_started:
            self._is_started = True
            self._context.engine.soon(self._requests.start)
        self._raise_failure()
        while self._protocol.step():
            pass
        self._reconciliation.listener_invoker.raise_error()

    def _raise_failure(self) -> None:
        if self._fatal is not None:
            raise copy(self._fatal)
        with self._requests.lock:
            problem, self._requests.failure = self._requests.failure, None
        if problem is None:
            return
        if isinstance(problem, FencedInstanceIdError):
            # Without the traceback that it is about to get, which refers to the consumer.
            self._fatal = copy(problem)
        self._protocol.on_failure()
        raise problem

    def next_due(self) -> float:
        """When `advance` has to be called again though nothing notifies, on the monotonic clock."""
        due = self._heartbeat_timer.last_poll + self._heartbeat_timer.max_poll_s / 3
        commit_due = self._reconciliation.next_due()
        return due if commit_due is None else min(due, commit_due)

    @property
    def is_settled(self) -> bool:
        """No rebalance under way, and no listener to call."""
        return self._protocol.is_settled

    def enforce_rebalance(self, reason: str) -> None:
        self._protocol.enforce_rebalance(reason)

    # Leaving

    def leave(self, deadline: float, reason: str = "the consumer unsubscribed") -> None:
        """Commit, revoke, then send the leave request. Errors of the network are only logged."""
        # One that chooses its partitions itself has left already, if it ever was in the group.
        if not self._is_started or not self._subscription.is_auto:
            return
        self._protocol.on_leave()
        self._reconciliation.before_leaving(deadline, is_member=self._protocol.is_member)
        try:
            # Also where the commit took all the time: else heartbeats would go on and keep what is not read.
            self._context.engine.run(self._requests.leave(reason), max(deadline - self._now(), _LEAVE_S))
        except (ClientError, ProtocolError) as problem:
            log.info("group %s: left without telling the coordinator: %s", self._context.group_id, problem)
        self._reconciliation.listener_invoker.raise_error()

    def close(self, deadline: float) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self.leave(deadline, "the consumer is being closed")
        finally:
            if self._is_started:
                self._context.engine.run(self._requests.stop())

    async def abandon(self) -> None:
        """On the engine's thread, without a lock: the consumer was collected, or the program ends. Warn and leave."""
        if self._is_closed or not self._is_started:
            return
        # A thread that is still inside a poll, while the program ends, must not join again.
        self._is_closed = True
        if self._subscription.is_auto:
            self._warn_unclosed()
        await self._requests.leave("the consumer was never closed")
        await self._requests.stop()

    def _warn_unclosed(self) -> None:
        then = (
            "it leaves the group now, and what was read since the last commit is read again"
            if self._instance_id is None
            else f"as {self._instance_id!r} (group.instance.id) it keeps its partitions until its session is over"
        )
        log.warning(
            "group %s: a consumer was never closed: %s; write `with Consumer(...) as consumer:`, or call close()",
            self._context.group_id,
            then,
        )

    # What others ask

    def group_metadata(self) -> ConsumerGroupMetadata:
        identity = self._protocol.identity
        return ConsumerGroupMetadata(
            self.coordinator.group_id, identity.generation, identity.member_id, self._instance_id
        )

    def metrics(self) -> dict[str, float]:
        now = self._now()
        return {
            **self._protocol.metrics(),
            "last-heartbeat-seconds-ago": now - self._heartbeat_timer.last_heard,
            "last-poll-seconds-ago": now - self._heartbeat_timer.last_poll,
        }

    def commit_identity(self) -> GroupIdentity:
        """The sender of a commit, from any thread; raises where the group would refuse it."""
        return self._protocol.commit_identity() if self._subscription.is_auto else NO_MEMBER

    def fetch_identity(self) -> GroupIdentity:
        """The sender of a request for committed offsets, from any thread."""
        if not self._subscription.is_auto:
            return NO_MEMBER
        with self._requests.lock:
            return self._protocol.identity

    def on_commit_refused(self, sent: GroupIdentity, code: int) -> Exception | None:
        """On the engine's thread: a commit was refused for its sender; the error to raise, none to try again."""
        return self._protocol.on_commit_refused(sent, code)

    def _now(self) -> float:
        return self._context.clock.monotonic()


def membership_for(context: ConsumerContext) -> Membership:
    """Speaks the protocol that `group.protocol` names; the other one is not even imported."""
    coordinator = CoordinatorClient(context.nodes, context.settings, context.group_id or "", context.random)
    reconciliation = Reconciliation(context)
    protocol: GroupProtocol
    if context.settings.text("group.protocol").lower() == "consumer":
        from braidlog.client.consumer.group.consumer_protocol import ConsumerProtocol

        protocol = ConsumerProtocol(context, coordinator, reconciliation)
    else:
        from braidlog.client.consumer.group.classic_protocol import ClassicProtocol

        protocol = ClassicProtocol(context, coordinator, reconciliation)
    return Membership(context, coordinator, reconciliation, protocol)
