"""What a rebalance does to the partitions of a consumer, in the program's thread.

Partitions that go are no longer fetched, then committed, then the listener is called, then they are taken away. Those
that come are assigned, then the listener is called.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from typing import Final, Protocol

from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.subscription_state import SubscriptionState
from braidlog.core.clock import Clock
from braidlog.core.types import TopicPartition

log = logging.getLogger("braidlog.client.group")

# Partitions that a line of the log names.
_SHOWN: Final = 20


class AutoCommit(Protocol):
    """What a rebalance needs of the consumer's commits."""

    def begin_auto_commit(self) -> Future[None] | None:
        """Commit what was returned so far, if that is automatic; does not wait."""
        ...

    def auto_commit_before_rebalance(self, deadline: float) -> None: ...

    def restart_auto_commit(self) -> None:
        """The next one is due a whole interval from now."""
        ...

    def next_due(self) -> float | None: ...


class Reconciliation:
    """Makes what the consumer has what its group gave it."""

    def __init__(self, context: ConsumerContext) -> None:
        self.commits: AutoCommit | None = None
        self.listener_invoker = RebalanceListenerInvoker(context.subscription, context.group_id or "")
        self._subscription = context.subscription
        longest_s = context.settings.seconds("max.poll.interval.ms") / 2
        self._revocation_commit = RevocationCommit(context.clock, longest_s)

    def is_committed(self, going: Iterable[TopicPartition]) -> bool:
        """Whether these can be revoked: nothing more of them is fetched, and the auto-commit is over."""
        self._subscription.mark_pending_revocation(going)
        return self._revocation_commit.is_over(self.commits)

    def revoke(self, going: Collection[TopicPartition]) -> None:
        self.listener_invoker.invoke_revoked(going)
        self._keep(sorted(self._subscription.assigned() - set(going)))

    def lose_all(self) -> None:
        """The group may have given them to others already."""
        self.forget_commit()
        self.listener_invoker.invoke_lost(self._subscription.assignment())
        self._keep(())

    def _keep(self, partitions: Iterable[TopicPartition]) -> None:
        if self._subscription.is_auto and self._subscription.assignment():
            self._subscription.assign_from_group(partitions)

    def assign(self, partitions: Iterable[TopicPartition], added: Iterable[TopicPartition]) -> None:
        self._subscription.assign_from_group(partitions)
        if self.commits is not None:
            self.commits.restart_auto_commit()
        self.listener_invoker.invoke_assigned(added)

    def before_leaving(self, deadline: float, *, is_member: bool) -> None:
        """Commit and call the listener; the partitions stay until the subscription changes."""
        self.forget_commit()
        if not is_member:
            self.listener_invoker.invoke_lost(self._subscription.assignment())
            return
        if self.commits is not None:
            self.commits.auto_commit_before_rebalance(deadline)
        self.listener_invoker.invoke_revoked(self._subscription.assignment())

    def forget_commit(self) -> None:
        """The auto-commit that was begun says nothing of the partitions that go next."""
        self._revocation_commit.forget()

    def next_due(self) -> float | None:
        """When a commit is due or no longer waited for."""
        times = (self._revocation_commit.due(), self.commits.next_due() if self.commits is not None else None)
        return min((each for each in times if each is not None), default=None)


class RevocationCommit:
    """The auto-commit before partitions are revoked: begun once, waited for without blocking, up to a limit."""

    def __init__(self, clock: Clock, longest_s: float) -> None:
        self._clock = clock
        self._longest_s = longest_s
        self._is_begun = False
        self._in_progress: Future[None] | None = None
        self._until = 0.0

    def is_over(self, commits: AutoCommit | None) -> bool:
        """Whether what was returned is committed, as far as it can be; the first question begins that."""
        now = self._clock.monotonic()
        if not self._is_begun:
            self._is_begun = True
            self._in_progress = commits.begin_auto_commit() if commits is not None else None
            self._until = now + self._longest_s
        if self._in_progress is not None and not self._in_progress.done() and now < self._until:
            return False
        self.forget()
        return True

    def forget(self) -> None:
        self._is_begun = False
        self._in_progress = None

    def due(self) -> float | None:
        """When the wait ends at the latest; none where nothing is waited for."""
        return self._until if self._in_progress is not None else None


class RebalanceListenerInvoker:
    """Calls the program's listener; what that raises is kept until the rebalance is complete."""

    def __init__(self, subscription: SubscriptionState, group_id: str) -> None:
        self._subscription = subscription
        self._group_id = group_id
        self._error: BaseException | None = None

    def invoke_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        """Still ours while the listener runs; the caller takes them away afterwards."""
        revoked = sorted(partitions)
        if revoked:
            log.info("group %s: gives up %s", self._group_id, _listed(revoked))
            self._call("on_partitions_revoked", revoked)

    def invoke_lost(self, partitions: Iterable[TopicPartition]) -> None:
        """Other members may have them already."""
        lost = sorted(partitions)
        if lost:
            log.warning("group %s: has lost %s; others may read them by now", self._group_id, _listed(lost))
            self._call("on_partitions_lost", lost, "on_partitions_revoked")

    def invoke_assigned(self, added: Iterable[TopicPartition]) -> None:
        """Called also when nothing came: a rebalance is over."""
        new = sorted(added)
        log.info("group %s: has now %s", self._group_id, _listed(self._subscription.assignment()))
        self._call("on_partitions_assigned", new)

    def _call(self, name: str, partitions: list[TopicPartition], otherwise: str = "") -> None:
        listener = self._subscription.listener
        callback: Callable[[list[TopicPartition]], object] | None = getattr(listener, name, None)
        if callback is None and otherwise:
            callback = getattr(listener, otherwise, None)
        if callback is None:
            return
        try:
            callback(partitions)
        except BaseException as problem:
            # The rebalance is completed first; then poll raises the program's own error.
            if self._error is None:
                self._error = problem

    def raise_error(self) -> None:
        error, self._error = self._error, None
        if error is not None:
            raise error


def _listed(partitions: Collection[TopicPartition]) -> str:
    shown = ", ".join(map(str, sorted(partitions)[:_SHOWN])) or "nothing"
    return shown if len(partitions) <= _SHOWN else f"{shown} and {len(partitions) - _SHOWN} more"
