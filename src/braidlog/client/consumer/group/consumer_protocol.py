"""The consumer protocol (KIP-848) in the program's thread: partitions are revoked and taken inside `poll`."""

from __future__ import annotations

import re

from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.group.consumer_protocol_member import (
    ConsumerMemberState,
    ConsumerProtocolMember,
    Owned,
    TopicSubscription,
)
from braidlog.client.consumer.group.consumer_protocol_requests import ConsumerProtocolRequests
from braidlog.client.consumer.group.coordinator_client import CoordinatorClient
from braidlog.client.consumer.group.heartbeat_timer import HeartbeatTimer
from braidlog.client.consumer.group.member import GroupIdentity, commit_error
from braidlog.client.consumer.group.reconciliation import Reconciliation
from braidlog.client.consumer.subscription_state import SubscriptionKind
from braidlog.client.errors import CommitFailedError
from braidlog.core.ids import id_text, random_id
from braidlog.core.protocol_errors import StaleMemberEpochError
from braidlog.core.types import TopicPartition


class ConsumerProtocol:
    def __init__(
        self, context: ConsumerContext, coordinator: CoordinatorClient, reconciliation: Reconciliation
    ) -> None:
        settings = context.settings
        self._context = context
        self._group_id = coordinator.group_id
        self._subscription = context.subscription
        self._reconciliation = reconciliation
        self._member = ConsumerProtocolMember(
            self._group_id,
            settings.optional_text("group.instance.id"),
            settings.optional_text("client.rack"),
            settings.number("max.poll.interval.ms"),
            settings.optional_text("group.remote.assignor"),
            new_member_id=lambda: id_text(random_id(context.random.randbytes)),
        )
        # The coordinator sets the heartbeat interval, and keeps the session's time itself.
        self.heartbeat_timer = HeartbeatTimer(
            0.0, float("inf"), settings.seconds("max.poll.interval.ms"), context.clock.monotonic()
        )
        self.requests = ConsumerProtocolRequests(context, coordinator, self._member, self.heartbeat_timer)
        self._sent_version = -1
        # Topics that we have, by name, with the id under which we have them.
        self._ids: dict[str, bytes] = {}
        # Whether the listener was called with an assignment since the last join, be it empty.
        self._has_assigned = False
        self._rebalances = 0

    @property
    def is_member(self) -> bool:
        return self._member.is_joined

    @property
    def is_settled(self) -> bool:
        return self._member.is_in(ConsumerMemberState.STABLE)

    @property
    def identity(self) -> GroupIdentity:
        return self._member.identity

    # Inside poll

    def step(self) -> bool:
        state = self._member.state
        if state in (ConsumerMemberState.UNJOINED, ConsumerMemberState.FENCED, ConsumerMemberState.STALE):
            self._lose_all()
            with self.requests.lock:
                self._sent_version = self._subscription.topics_version
                self._member.join(self._subscribed())
            self._request_heartbeat()
            return False
        if self._sent_version != self._subscription.topics_version:
            with self.requests.lock:
                self._sent_version = self._subscription.topics_version
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

    def _lose_all(self) -> None:
        self._reconciliation.lose_all()
        self.on_leave()

    def _reconcile(self) -> bool:
        """Make what we have what the coordinator wants, as far as its topics are known by name."""
        with self.requests.lock:
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
        revoked = (owned - wanted) | replaced
        if revoked:
            if not self._reconciliation.is_committed(revoked):
                return False
            self._reconciliation.revoke(revoked)
        if revoked or wanted != owned or not self._has_assigned:
            self._rebalances += 1
            self._has_assigned = True
            self._reconciliation.assign(sorted(wanted), wanted - (owned - revoked))
        self._ids = ids
        mine: Owned = {topic_id: target[topic_id] for topic_id in ids.values()}
        with self.requests.lock:
            self._member.took(target, mine, whole=whole)
            has_changes = self._member.has_changes
        if has_changes:
            self._request_heartbeat()
        return whole and self._member.is_in(ConsumerMemberState.RECONCILING)

    def _is_wanted(self, name: str | None) -> bool:
        if name is None:
            return False
        return self._subscription.kind is not SubscriptionKind.TOPICS or name in self._subscription.topics

    def _request_heartbeat(self) -> None:
        self._context.engine.soon(self.requests.request_heartbeat)

    # For the membership

    def on_failure(self) -> None:
        with self.requests.lock:
            self._member.out()
        self._lose_all()

    def on_leave(self) -> None:
        self._ids = {}
        self._has_assigned = False

    def enforce_rebalance(self, reason: str) -> None:
        """The coordinator alone decides when to assign anew; as in Kafka there is nothing to ask for."""

    def metrics(self) -> dict[str, float]:
        return {"rebalance-total": float(self._rebalances), "heartbeat-total": float(self.requests.heartbeats)}

    # For commits

    def commit_identity(self) -> GroupIdentity:
        with self.requests.lock:
            identity = self._member.identity
        if identity.is_member:
            return identity
        raise CommitFailedError(
            f"group {self._group_id}: not committed, since this consumer is not in the group now; "
            "call poll() to join, and read on from what is committed"
        )

    def on_commit_refused(self, sent: GroupIdentity, code: int) -> Exception | None:
        if code == StaleMemberEpochError.code and sent.is_member and self._member.is_joined:
            # The epoch rises with every change of the group; the answer to the next heartbeat has the new one.
            return None
        return commit_error(self._group_id, code)


def _regex_of(pattern: re.Pattern[str]) -> str | None:
    """The pattern for the broker to match; none where it says more than the broker's expressions can."""
    flags = pattern.flags & ~re.UNICODE
    if flags & ~re.IGNORECASE:
        return None
    return f"(?i){pattern.pattern}" if flags else pattern.pattern
