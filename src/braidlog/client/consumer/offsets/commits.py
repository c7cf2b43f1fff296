"""Offsets kept in the group: written when the program says so, or by themselves; read when a partition begins.

Delivery: what is committed is what `poll` returned before, never what is only fetched. With auto-commit a program that
handles all records of one poll before the next gets each at least once.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from typing import Any

from braidlog.client.consumer.context import ConsumerContext
from braidlog.client.consumer.group.membership import Membership
from braidlog.client.consumer.interceptors import ConsumerInterceptors
from braidlog.client.consumer.offsets.commit_requests import Offsets
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.offsets.offset_requests import CommitOperation, CommittedOffsets, OffsetRequests
from braidlog.client.errors import ClientError, CommitFailedError, RequestTimeout
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import ProtocolError, RebalanceInProgressError
from braidlog.core.types import TopicPartition

log = logging.getLogger("braidlog.client.group")

Callback = Callable[[dict[TopicPartition, OffsetAndMetadata], Exception | None], None]


class _PendingCallback:
    """An asynchronous commit whose callback has not run yet."""

    def __init__(self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: Callback | None) -> None:
        self.offsets = offsets
        self.callback = callback
        self.done: Future[None] = Future()


class Commits:
    def __init__(
        self, context: ConsumerContext, membership: Membership, interceptors: ConsumerInterceptors | None = None
    ) -> None:
        settings = context.settings
        self._interceptors = interceptors
        self._context = context
        self._coordinator = membership.coordinator
        self._auto = settings.flag("enable.auto.commit")
        self._interval_s = settings.seconds("auto.commit.interval.ms")
        self._backoff_s = settings.seconds("retry.backoff.ms")
        self._auto_due = context.clock.monotonic() + self._interval_s
        self._auto_running = False
        # Oldest first: callbacks run in the order of the calls.
        self._pending: deque[_PendingCallback] = deque()
        self._requests = OffsetRequests(context.subscription, membership)
        self._count = 0
        self._failures = 0
        membership.use_auto_commit(self)

    # The program's thread

    def commit(self, offsets: Offsets | None, deadline: float) -> None:
        """Write, and wait until that is acknowledged; what may pass is tried again until the deadline."""
        wanted = self._wanted(offsets)
        self._run_callbacks()
        if wanted:
            self._run(self._requests.commit_with_retries(self._requests.begin_commit(wanted)), deadline, "the commit")
            self._committed(wanted)
        self._run_callbacks()

    def commit_async(self, offsets: Offsets | None, callback: Callback | None = None) -> None:
        """Write without waiting, and without trying again; the callback runs inside a later poll, commit or close."""
        self._begin_async(self._wanted(offsets), callback)

    def committed(self, partitions: Iterable[TopicPartition], deadline: float) -> CommittedOffsets:
        wanted = list(dict.fromkeys(partitions))
        if not wanted:
            return {}
        found: CommittedOffsets = self._run(self.fetch_committed(wanted), deadline, "the look-up of committed offsets")
        return found

    def tick(self, now: float) -> None:
        """From every poll, before it takes records: callbacks that are due, and the auto-commit."""
        self._run_callbacks()
        if not self._auto or now < self._auto_due or self._auto_running:
            return
        self._auto_due = now + self._interval_s
        self.begin_auto_commit_of_all()

    def begin_auto_commit_of_all(self) -> None:
        """Without waiting; what `close` finds still under way it waits for."""
        offsets = self._context.subscription.consumed() if self._auto else {}
        if offsets:
            self._auto_running = True
            self._begin_async(offsets, self._on_auto_commit)

    def next_due(self) -> float | None:
        return self._auto_due if self._auto and not self._auto_running else None

    def restart_auto_commit(self) -> None:
        self._auto_due = self._context.clock.monotonic() + self._interval_s

    def begin_auto_commit(self) -> Future[None] | None:
        work = self._auto_commit()
        return None if work is None else self._submit(work)

    def auto_commit_before_rebalance(self, deadline: float) -> None:
        """Nothing here is worth failing for: what is not committed is read again by the next owner."""
        work = self._auto_commit()
        if work is None:
            return
        left = deadline - self._context.clock.monotonic()
        try:
            self._context.engine.run(work, max(left, 0.0))
        except ClientError as problem:
            log.warning("group %s: offsets were not committed: %s", self._coordinator.group_id, problem)

    def _auto_commit(self) -> Coroutine[Any, Any, None] | None:
        offsets = self._context.subscription.consumed() if self._auto else {}
        if not offsets:
            return None
        try:
            return self._commit_before_rebalance(self._requests.begin_commit(offsets))
        except (ClientError, ProtocolError) as problem:
            log.debug("group %s: nothing is committed before the rebalance: %s", self._coordinator.group_id, problem)
            return None

    def close(self, deadline: float) -> None:
        """Wait for what is under way and call back; a member's last commit came before it left its group."""
        if not self._context.subscription.is_auto:
            self.auto_commit_before_rebalance(deadline)
        for pending in list(self._pending):
            left = deadline - self._context.clock.monotonic()
            try:
                pending.done.exception(max(left, 0.0))
            except TimeoutError:
                pending.done.cancel()
        self._run_callbacks()

    def metrics(self) -> dict[str, float]:
        return {"commit-total": float(self._count), "commit-failed-total": float(self._failures)}

    def _wanted(self, offsets: Offsets | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            return self._context.subscription.consumed()
        for partition, wanted in offsets.items():
            if wanted.offset < 0:
                raise UserError(f"{partition}: offset {wanted.offset} cannot be committed; offsets start at 0")
        return dict(offsets)

    def _run(self, work: Coroutine[Any, Any, Any], deadline: float, what: str) -> Any:
        return self._context.wakeup.run(self._context.engine, work, deadline, what)

    def _submit(self, work: Coroutine[Any, Any, None]) -> Future[None]:
        done = asyncio.run_coroutine_threadsafe(work, self._context.engine.loop)
        done.add_done_callback(lambda _: self._context.wakeup.notify())
        return done

    def _begin_async(self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: Callback | None) -> None:
        pending = _PendingCallback(offsets, callback)
        if offsets:
            try:
                pending.done = self._submit(self._requests.commit_once(self._requests.begin_commit(offsets)))
            except (ClientError, ProtocolError) as problem:
                pending.done.set_exception(problem)
        else:
            pending.done.set_result(None)
        self._pending.append(pending)

    def _run_callbacks(self) -> None:
        while self._pending and self._pending[0].done.done():
            pending = self._pending.popleft()
            problem = _problem_of(pending.done)
            if problem is None:
                self._committed(pending.offsets)
            else:
                self._failures += 1
            if pending.callback is not None:
                pending.callback(pending.offsets, problem)
            elif problem is not None:
                log.warning("group %s: an asynchronous commit failed: %s", self._coordinator.group_id, problem)

    def _committed(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self._count += 1
        if self._interceptors is not None:
            self._interceptors.on_commit(offsets)

    def _on_auto_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], problem: Exception | None) -> None:
        self._auto_running = False
        if problem is None:
            return
        if isinstance(problem, (ClientError, ProtocolError)) and problem.retriable:
            self._auto_due = min(self._auto_due, self._context.clock.monotonic() + self._backoff_s)
            log.debug("group %s: the auto-commit is tried again: %s", self._coordinator.group_id, problem)
        elif isinstance(problem, RebalanceInProgressError):
            log.debug("group %s: no auto-commit while the group rebalances", self._coordinator.group_id)
        else:
            log.warning("group %s: an auto-commit failed: %s", self._coordinator.group_id, problem)

    # The engine's thread

    async def _commit_before_rebalance(self, operation: CommitOperation) -> None:
        try:
            await self._requests.commit_with_retries(operation)
            self._count += 1
        except (ClientError, ProtocolError) as problem:
            self._failures += 1
            log.warning(
                "group %s: offsets were not committed before the rebalance: %s", self._coordinator.group_id, problem
            )

    async def fetch_committed(self, partitions: list[TopicPartition]) -> CommittedOffsets:
        """Tries again what may pass until it is cancelled; raises what the program has to know."""
        return await self._requests.fetch_committed(partitions)


def _problem_of(done: Future[None]) -> Exception | None:
    if done.cancelled():
        return RequestTimeout("the commit was not acknowledged before the consumer was closed")
    problem = done.exception()
    if problem is None or isinstance(problem, Exception):
        return problem
    return CommitFailedError(f"the commit ended with {problem!r}")
