"""Many workers on one consumer, the order of each key kept, offsets committed only when all before them is done."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from weakref import ref

from braidlog.client.arguments import Many, listed
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.parallel.work_queue import WorkQueue
from braidlog.client.consumer.parallel.work_tracker import Ordering, WorkTracker
from braidlog.client.consumer.parallel.worker_pool import FailurePolicy, Handler, OnFailure, WorkerPool, worker_pool_for
from braidlog.client.consumer.rebalance_listener import RebalanceListener
from braidlog.client.errors import ClosedError, CommitFailedError, HandlerFailedError, RequestTimeout
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import RebalanceInProgressError
from braidlog.core.types import TopicPartition

if TYPE_CHECKING:
    from braidlog.client.consumer.consumer import Consumer

log = logging.getLogger("braidlog.client.parallel")

_POLL_S: Final = 0.1
# While there is no room the consumer is still polled this often: a group expects its members to poll.
_FULL_POLL_S: Final = 0.1


class ParallelConsumer:
    """`ParallelConsumer(consumer, handler).subscribe(["orders"]).run()`; over `Consumer("orders", ...)` just `run()`.

    `handler(record)` runs in one of `workers` threads; a coroutine function runs as one of `workers` tasks on a loop
    of its own. `ordering` says what stays in order: records with the same "key" (of one partition; those without a
    key are free), those of a "partition", or nothing ("unordered"). At most `max_in_flight` records are taken on and
    not done; then partitions are paused. The consumer must not commit by itself (`enable_auto_commit=False`), and
    while `run` runs it is this object's alone.
    """

    def __init__(
        self,
        consumer: Consumer,
        handler: Handler,
        *,
        workers: int = 8,
        ordering: Ordering = "key",
        max_in_flight: int = 1000,
        retries: int | None = 0,
        retry_backoff: float = 0.1,
        retry_backoff_max: float = 10.0,
        on_failure: OnFailure = "raise",
        commit_interval: float = 1.0,
        drain_timeout: float = 30.0,
    ) -> None:
        if workers < 1 or max_in_flight < 1:
            raise ValueError("workers and max_in_flight have to be at least 1")
        policy = FailurePolicy(retries, retry_backoff, retry_backoff_max, on_failure)
        policy.check()
        _check(consumer)
        self._consumer = consumer
        self._clock = consumer._clock
        self._most = max_in_flight
        self._commit_interval = commit_interval
        self._drain_timeout = drain_timeout
        self._queue = WorkQueue(WorkTracker(ordering), consumer._clock)
        self._worker_pool: WorkerPool = worker_pool_for(self._queue, handler, policy, workers)
        self._state = "new"
        self._stopping = False
        self._is_subscribed = False
        # Whether the group has assigned once.
        self._is_assigned = False
        self._paused: set[TopicPartition] = set()
        self._next_commit = 0.0

    def __repr__(self) -> str:
        return f"<ParallelConsumer over {self._consumer!r}, {self._state}, {self.in_flight} in flight>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a ParallelConsumer cannot be copied or pickled; make one where it is used")

    # What to read

    def subscribe(self, topics: Many[str] | str | re.Pattern[str], listener: RebalanceListener | None = None) -> Self:
        """As `Consumer.subscribe`; a listener of the consumer's own would not know of work in progress."""
        wanted = topics if isinstance(topics, (str, re.Pattern)) else listed(topics, "topics")
        self._consumer.subscribe(wanted, listener=_WorkDrainingListener(self, listener or RebalanceListener()))
        self._is_subscribed = True
        return self

    def _take_over_subscription(self) -> None:
        """The consumer was subscribed before: work in progress has to end at its rebalances, too."""
        topics, listener = self._consumer._current_subscription()
        if topics:
            self.subscribe(topics, listener)

    # Running

    def run(self, *, idle_timeout: float | None = None) -> None:
        """Poll and let workers handle, until `stop` is called or, if that is given, nothing came for so long.

        `idle_timeout` counts from the first assignment on: the group may take its time to assign.
        What was taken on is finished then (for `drain_timeout` at most) and committed. Raises HandlerFailedError if
        a handler failed for good: that record and everything after it in its partition stay uncommitted.
        """
        if self._state != "new":
            raise ClosedError("a ParallelConsumer runs once; make another one over the same consumer")
        if not self._is_subscribed:
            self._take_over_subscription()
        self._state = "running"
        self._worker_pool.start()
        self._next_commit = self._clock.monotonic() + self._commit_interval
        try:
            self._poll_until_stopped(idle_timeout)
            self._queue.wait_until(lambda tracker: tracker.incomplete == 0, self._drain_timeout)
        finally:
            self._shut_down()
        self._raise_failure()

    def _poll_until_stopped(self, idle_timeout: float | None) -> None:
        last_record_at = self._clock.monotonic()
        while not self._stopping and self._queue.failure is None:
            room = self._most - self._queue.incomplete
            if room <= 0:
                self._poll_while_full()
                last_record_at = self._clock.monotonic()
                continue
            records = self._consumer.poll(_POLL_S, max_records=room)
            if records:
                self._queue.add(records)
                self._worker_pool.notify()
            now = self._clock.monotonic()
            if records or self._queue.incomplete or not self._has_assignment():
                last_record_at = now
            elif idle_timeout is not None and now - last_record_at >= idle_timeout:
                return
            if now >= self._next_commit:
                self._commit(self._queue.committable())

    def _has_assignment(self) -> bool:
        """Whether the group has assigned something, be it nothing: before that, no records do not mean idleness."""
        return self._is_assigned or bool(self._consumer.assignment())

    def _poll_while_full(self) -> None:
        """Until half of what may be in flight is done; nothing is fetched meanwhile, but the group is answered."""
        self._pause(self._consumer.assignment())
        enough = self._most // 2
        while not self._stopping and self._queue.failure is None:
            if self._queue.wait_until(lambda tracker: tracker.incomplete <= enough, _FULL_POLL_S):
                break
            # A rebalance can bring partitions that were not paused yet.
            records = self._consumer.poll(0)
            if records:
                self._queue.add(records)
                self._worker_pool.notify()
            self._pause(self._consumer.assignment())
            if self._clock.monotonic() >= self._next_commit:
                self._commit(self._queue.committable())
        self._resume()

    def _pause(self, partitions: Iterable[TopicPartition]) -> None:
        fresh = set(partitions) - self._paused
        if fresh:
            self._consumer.pause(sorted(fresh))
            self._paused |= fresh

    def _resume(self) -> None:
        ours = self._paused & set(self._consumer.assignment())
        self._paused = set()
        if ours:
            self._consumer.resume(sorted(ours))

    # Ending

    def stop(self) -> None:
        """Let `run` end, after what was taken on is done; from any thread, a handler's too."""
        # The next look at it is a poll away at most. A wakeup of the consumer could come too late, and then end
        # some call that has nothing to do with this.
        self._stopping = True

    def _shut_down(self) -> None:
        self._state = "closed"
        self._queue.close()
        self._worker_pool.notify()
        if not self._worker_pool.join(self._drain_timeout):
            log.warning("handlers still run after %g s; what they still handle stays uncommitted", self._drain_timeout)
        self._resume()
        self._commit(self._queue.committable())

    def _raise_failure(self) -> None:
        failure = self._queue.failure
        if failure is not None:
            record = failure.record
            raise HandlerFailedError(
                f"the handler failed with {record.topic}-{record.partition} at offset {record.offset}: "
                f"{type(failure.error).__name__}: {failure.error}; it was not committed and comes again unless you "
                "retry (retries=), skip (on_failure='skip') or put it elsewhere (on_failure=function)",
                record,
            ) from failure.error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._state == "new":
            self._state = "closed"

    # Committing

    def _commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        self._next_commit = self._clock.monotonic() + self._commit_interval
        if not offsets:
            return
        try:
            self._consumer.commit(offsets)
        except (CommitFailedError, RebalanceInProgressError, RequestTimeout) as problem:
            # The group is settling or its coordinator does not answer; what stays ours is committed the next time.
            log.info("offsets were not committed this time: %s", problem)
            return
        self._queue.note_committed(offsets)

    def _revoke(self, partitions: list[TopicPartition]) -> None:
        """Partitions go to others: finish what was taken on of them, or as much as there is time for."""
        if self._state != "running":
            # The workers have ended, and what they did was committed.
            self._lose(partitions)
            return
        finished = self._queue.wait_until(lambda tracker: tracker.incomplete_of(partitions) == 0, self._drain_timeout)
        if not finished:
            log.info("partitions are revoked with records still in progress: their next owner processes them again")
        self._commit(self._queue.committable(partitions))
        self._lose(partitions)

    def _lose(self, partitions: list[TopicPartition]) -> None:
        self._queue.drop(partitions)
        self._paused -= set(partitions)

    # Watching

    @property
    def in_flight(self) -> int:
        """Records that were taken on and are not complete."""
        return self._queue.incomplete

    def metrics(self) -> Mapping[str, float]:
        """Counts since the start, and what is in progress."""
        queue = self._queue
        return {
            "records-handled-total": queue.handled,
            "retries-total": queue.retried,
            "records-given-up-total": queue.given_up,
            "records-in-flight": queue.incomplete,
        }


class _WorkDrainingListener(RebalanceListener):
    """Between the consumer and the user's listener: work is completed before partitions go.

    The consumer refers to it: a reference back would be a cycle that only the garbage collector frees.
    """

    def __init__(self, parallel: ParallelConsumer, listener: Any) -> None:
        self._parallel = ref(parallel)
        self._listener = listener

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        if (parallel := self._parallel()) is not None:
            parallel._is_assigned = True
        self._listener.on_partitions_assigned(partitions)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        if (parallel := self._parallel()) is not None:
            parallel._revoke(partitions)
        self._listener.on_partitions_revoked(partitions)

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        if (parallel := self._parallel()) is not None:
            parallel._lose(partitions)
        self._listener.on_partitions_lost(partitions)


def _check(consumer: Consumer) -> None:
    settings = consumer._settings
    if not settings.optional_text("group.id"):
        raise UserError("the consumer has no group to commit for: give it group_id")
    if settings.flag("enable.auto.commit"):
        raise UserError(
            "the consumer commits what it has handed out, done or not: "
            "give it enable_auto_commit=False and leave that to the ParallelConsumer"
        )
