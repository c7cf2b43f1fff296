"""What every call of a consumer goes through: the thread check, the group's business, and waiting."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from braidlog.client.consumer.consumer_network import ConsumerNetwork
from braidlog.client.consumer.lifetime import ConsumerLifetime
from braidlog.client.consumer.subscription_state import SubscriptionKind
from braidlog.client.consumer.thread_check import OneThread
from braidlog.client.errors import ClosedError
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

if TYPE_CHECKING:
    from braidlog.client.cluster_view import ClusterView
    from braidlog.client.consumer.group.membership import Membership
    from braidlog.client.consumer.offsets.commits import Commits

T = TypeVar("T")


class ConsumerCore:
    def __init__(self, config: Mapping[str, Any] | None, settings: Mapping[str, Any]) -> None:
        self._one_thread = OneThread("consumer")
        self._closed = False
        # Without a group: what the partitions were chosen by.
        self._assigned_view: ClusterView | None = None
        self._assigned_version = -1
        self._network = side = ConsumerNetwork(config, settings)
        self._subscription = side.subscription
        # What was fetched and not yet returned.
        self._fetch_buffer = side.fetch_buffer
        self._wakeup = side.wakeup
        self._membership = side.membership
        self._commits = side.commits
        self._api_timeout_s = side.settings.seconds("default.api.timeout.ms")
        self._lifetime = ConsumerLifetime(self, side, self._on_fork)

    def _on_fork(self) -> None:
        """In the child of a fork: the membership is the parent's, and so is what was fetched."""
        self._one_thread.mark_forked()
        self._fetch_buffer.discard()

    def _poll_with(self, take: Callable[[], T | None], timeout: float) -> T | None:
        """What every poll does: look after the group, then see whether `take` finds something, until it does.

        For who takes something else than records from the fetch buffer, as `poll_arrow` does.
        """
        with self._one_thread:
            return self._poll(take, time.monotonic() + timeout)

    def _poll(self, take: Callable[[], T | None], deadline: float) -> T | None:
        self._begin_call()
        if self._subscription.kind is SubscriptionKind.NONE:
            raise UserError("nothing to read: subscribe() to topics or assign() partitions first")
        side = self._network
        membership = self._membership
        while True:
            self._wakeup.check()
            side.raise_failures()
            due = deadline
            if membership is not None:
                if self._subscription.is_auto:
                    membership.advance(deadline)
                due = min(deadline, membership.next_due() or deadline)
            elif self._subscription.is_auto:
                self._assign_all()
            if self._commits is not None:
                self._commits.tick(time.monotonic())
            found = take()
            if found is not None:
                return found
            now = time.monotonic()
            if now >= deadline:
                return None
            self._wakeup.wait(due - now)

    def _assign_all(self) -> None:
        """Without a group nobody shares: a subscription is every partition of its topics, as metadata tells of them."""
        view, subscription = self._network.metadata.view, self._subscription
        if self._assigned_view is view and self._assigned_version == subscription.topics_version:
            return
        self._assigned_view, self._assigned_version = view, subscription.topics_version
        owned = subscription.assigned()
        wanted: set[TopicPartition] = set()
        for name in subscription.topics:
            topic = view.topic(name)
            if topic is not None:
                wanted.update(TopicPartition(name, number) for number in range(len(topic.partitions)))
            else:
                # Not known now; one that was read before may come back, and its positions are still good.
                wanted.update(each for each in owned if each.topic == name)
        if wanted == owned:
            return
        if owned - wanted:
            subscription.listener.on_partitions_revoked(sorted(owned - wanted))
        subscription.assign_from_group(sorted(wanted))
        if wanted - owned:
            subscription.listener.on_partitions_assigned(sorted(wanted - owned))

    def _begin_call(self) -> None:
        """Before anything that looks at positions or changes them."""
        if self._closed:
            raise ClosedError("this consumer is closed; make a new one")
        self._fetch_buffer.update_position()

    def _deadline(self, timeout: float | None) -> float:
        return time.monotonic() + (self._api_timeout_s if timeout is None else timeout)

    def _run(self, work: Coroutine[Any, Any, T], timeout: float | None, what: str) -> T:
        return self._wakeup.run(self._network.engine, work, self._deadline(timeout), what)

    def _need_membership(self, what: str) -> Membership:
        if self._membership is None:
            raise UserError(f"this consumer has no group and cannot {what}; give it group_id")
        return self._membership

    def _need_commits(self, what: str) -> Commits:
        self._need_membership(what)
        assert self._commits is not None
        return self._commits
