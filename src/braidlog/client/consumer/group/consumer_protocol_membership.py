"""A membership of the newer protocol as the program's thread sees it: giving up and taking inside `poll`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from copy import copy

from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.group.consumer_protocol_member import ConsumerProtocolMember, Owned, TopicSubscription
from braidlog.client.consumer.group.consumer_protocol_requests import ConsumerProtocolRequests
from braidlog.client.consumer.group.coordinator_client import CoordinatorClient
from braidlog.client.consumer.group.heartbeat_timer import HeartbeatTimer
from braidlog.client.consumer.group.identity import NO_MEMBER, GroupIdentity
from braidlog.client.consumer.group.leave_group import commit_error, leave_group, warn_unclosed
from braidlog.client.consumer.group.member_states import ConsumerMemberState
from braidlog.client.consumer.group.membership import AutoCommit
from braidlog.client.consumer.group.rebalance_listener_invoker import RebalanceListenerInvoker
from braidlog.client.consumer.group.revocation_commit import RevocationCommit
from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata
from braidlog.client.consumer.subscription_state import SubscriptionKind
from braidlog.client.errors import CommitFailedError
from braidlog.core.protocol_errors import FencedInstanceIdError, StaleMemberEpochError
from braidlog.core.types import TopicPartition


class ConsumerProtocolMembership:
    def __init__(self, context: ConsumerContext) -> None:
        settings = context.settings
        group_id = context.group_id or ""
        longest_s = settings.seconds("max.poll.interval.ms")
        self.coordinator = CoordinatorClient(context.nodes, settings, group_id)
        self.commits: AutoCommit | None = None
        self._context = context
        self._subscription = context.subscription
        self._instance_id = settings.optional_text("group.instance.id")
        self._member = ConsumerProtocolMember(
            group_id,
            self._instance_id,
            settings.optional_text("client.rack"),
            settings.number("max.poll.interval.ms"),
            settings.optional_text("group.remote.assignor"),
        )
        # The coordinator says how often it wants to hear of us, and keeps the session's time itself.
        self._heartbeat_timer = HeartbeatTimer(0.0, float("inf"), longest_s, context.clock.monotonic())
        self._requests = ConsumerProtocolRequests(context, self.coordinator, self._member, self._heartbeat_timer)
        self._listener_invoker = RebalanceListenerInvoker(self._subscription, group_id)
        self._revocation_commit = RevocationCommit(context.clock, longest_s / 2)
        self._is_started = False
        self._is_closed = False
        self._fatal: FencedInstanceIdError | None = None
        self._told_version = -1
        # Topics that we have, by name, with the id under which we have them.
        self._ids: dict[str, bytes] = {}
        # Whether this life has been told of an assignment, be it empty.
        self._has_taken = False
        self._rebalances = 0

    # Inside poll

    def advance(self, deadline: float) -> None:
        if self._is_closed:
            return
        self._heartbeat_timer.polled(self._context.clock.monotonic())
        if not self._is_started:
            self._is_started = True
            self._context.engine.soon(self._requests.start)
        self._raise_failure()
        while self._step():
            pass
        self._listener_invoker.raise_error()

    def _raise_failure(self) -> None:
        if self._fatal is not None:
            raise copy(self._fatal)
        with self._requests.lock:
            problem, self._requests.failure = self._requests.failure, None
        if problem is None:
            return
        if isinstance(problem, FencedInstanceIdError):
            # Without the traceback that it is about to get, which has the consumer.
            self._fatal = copy(problem)
        with self._requests.lock:
            self._member.out()
        self._let_go()
        self._listener_invoker.raise_error()
        raise problem

    def _step(self) -> bool:
        state = self._member.state
        if state in (ConsumerMemberState.UNJOINED, ConsumerMemberState.FENCED, ConsumerMemberState.STALE):
            self._let_go()
            with self._requests.lock:
                self._told_version = self._subscription.topics_version
                self._member.join(self._subscribed())
            self._request_heartbeat()
            return False
        if self._told_version != self._subscription.topics_version:
            with self._requests.lock:
                self._told_version = self._subscription.topics_version
                self._member.subscribe(self._subscribed())
            self._request_heartbeat()
        if state is ConsumerMemberState.RECONCILING:
            return self._reconcile()
        return False

    def _subscribed(self) -> TopicSubscription:
        topics = tuple(sorted(self._subscription.topics))
        pattern = self._subscription.pattern
        if self._subscription.kind is not SubscriptionKind.PATTERN or pattern is None:
            return TopicSubscription(topics)
        return TopicSubscription(topics, _regex_of(pattern))

    def _let_go(self) -> None:
        self._revocation_commit.forget()
        self._listener_invoker.invoke_lost(self._subscription.assignment())
        self._keep(())
        self._ids = {}
        self._has_taken = False

    def _keep(self, partitions: Iterable[TopicPartition]) -> None:
        if self._subscription.is_auto and self._subscription.assignment():
            self._subscription.assign_from_group(partitions)

    def _reconcile(self) -> bool:
        """Make what we have what the coordinator wants, as far as its topics are known by name."""
        with self._requests.lock:
            target = self._member.target
        if target is None:
            return False
        names = {topic.topic_id: name for name, topic in self._context.metadata.view.topics.items()}
        ids = {names[topic_id]: topic_id for topic_id in target if self._is_wanted(names.get(topic_id))}
        whole = all(topic_id in names for topic_id in target)
        if not whole:
            self._context.engine.soon(self._context.metadata.request_update)
        wanted = {TopicPartition(name, number) for name, topic_id in ids.items() for number in target[topic_id]}
        owned = self._subscription.assigned()
        # A topic that was made anew under its old name is another one.
        replaced = {each for each in owned & wanted if self._ids.get(each.topic, ids[each.topic]) != ids[each.topic]}
        going = (owned - wanted) | replaced
        if going:
            self._subscription.mark_pending_revocation(going)
            if not self._revocation_commit.is_over(self.commits):
                return False
            self._listener_invoker.invoke_revoked(going)
            self._keep(owned - going)
        if going or wanted != owned or not self._has_taken:
            self._take(wanted, wanted - (owned - going))
        self._ids = ids
        mine: Owned = {topic_id: target[topic_id] for topic_id in ids.values()}
        with self._requests.lock:
            self._member.took(target, mine, whole=whole)
            has_news = self._member.has_news
        if has_news:
            self._request_heartbeat()
        return whole and self._member.is_in(ConsumerMemberState.RECONCILING)

    def _is_wanted(self, name: str | None) -> bool:
        if name is None:
            return False
        return self._subscription.kind is not SubscriptionKind.TOPICS or name in self._subscription.topics

    def _take(self, wanted: set[TopicPartition], added: set[TopicPartition] | frozenset[TopicPartition]) -> None:
        self._rebalances += 1
        self._has_taken = True
        self._subscription.assign_from_group(sorted(wanted))
        if self.commits is not None:
            self.commits.restart_auto_commit()
        self._listener_invoker.invoke_assigned(added)

    def _request_heartbeat(self) -> None:
        self._context.engine.soon(self._requests.request_heartbeat)

    # From outside

    @property
    def is_settled(self) -> bool:
        return self._member.is_in(ConsumerMemberState.STABLE)

    def next_due(self) -> float | None:
        due = self._heartbeat_timer.last_poll + self._heartbeat_timer.max_poll_s / 3
        others = (self._revocation_commit.due(), self.commits.next_due() if self.commits is not None else None)
        return min([due, *(each for each in others if each is not None)])

    def enforce_rebalance(self, reason: str) -> None:
        """The coordinator decides alone when to share out anew; as in Kafka there is nothing to ask for."""

    def leave(self, deadline: float, reason: str = "the consumer unsubscribed") -> None:
        # One that chooses its partitions itself has left already, if it ever was in the group.
        if not self._is_started or not self._subscription.is_auto:
            return
        self._revocation_commit.forget()
        leave_group(
            self._context,
            self.commits,
            self._listener_invoker,
            self._member.is_joined,
            self._requests.leave(reason),
            deadline,
        )
        self._ids = {}
        self._has_taken = False
        self._listener_invoker.raise_error()

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
        if self._is_closed or not self._is_started:
            return
        # A thread that is still inside a poll, while the program ends, must not join again.
        self._is_closed = True
        if self._subscription.is_auto:
            warn_unclosed(self.coordinator.group_id, self._instance_id)
        await self._requests.leave("the consumer was never closed")
        await self._requests.stop()

    def group_metadata(self) -> ConsumerGroupMetadata:
        identity = self._member.identity
        return ConsumerGroupMetadata(
            self.coordinator.group_id, identity.generation, identity.member_id, self._instance_id
        )

    def metrics(self) -> dict[str, float]:
        now = self._context.clock.monotonic()
        return {
            "rebalance-total": float(self._rebalances),
            "heartbeat-total": float(self._requests.heartbeats),
            "last-heartbeat-seconds-ago": now - self._heartbeat_timer.last_heard,
            "last-poll-seconds-ago": now - self._heartbeat_timer.last_poll,
        }

    # For commits

    def commit_identity(self) -> GroupIdentity:
        if not self._subscription.is_auto:
            return NO_MEMBER
        with self._requests.lock:
            identity = self._member.identity
        if identity.is_member:
            return identity
        raise CommitFailedError(
            f"group {self.coordinator.group_id}: not committed, since this consumer is not in the group now; "
            "call poll() to join, and read on from what is committed"
        )

    def fetch_identity(self) -> GroupIdentity:
        with self._requests.lock:
            return self._member.identity if self._subscription.is_auto else NO_MEMBER

    def on_commit_refused(self, sent: GroupIdentity, code: int) -> Exception | None:
        if code == StaleMemberEpochError.code and sent.is_member and self._member.is_joined:
            # The epoch rises with every change of the group; the heartbeat under way tells us the new one.
            return None
        return commit_error(self.coordinator.group_id, code)


def _regex_of(pattern: re.Pattern[str]) -> str | None:
    """The pattern for the broker to match; none where it says more than the broker's expressions can."""
    flags = pattern.flags & ~re.UNICODE
    if flags & ~re.IGNORECASE:
        return None
    return f"(?i){pattern.pattern}" if flags else pattern.pattern
