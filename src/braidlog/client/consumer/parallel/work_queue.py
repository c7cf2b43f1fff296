"""The queue between the thread that polls and the workers: the tracker under one lock, with its two conditions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.parallel.work_tracker import Work, WorkTracker
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.core.clock import Clock
from braidlog.core.types import TopicPartition


class WorkQueue:
    """Polls put records here, workers take them; `failure` is the first error that stops the consumer."""

    def __init__(self, tracker: WorkTracker, clock: Clock) -> None:
        self._tracker = tracker
        self._clock = clock
        lock = threading.Lock()
        self._lock = lock
        self._work_is_there = threading.Condition(lock)
        self._work_is_done = threading.Condition(lock)
        self._idle_workers = 0
        self._is_watched = False
        self._closing = False
        self.failure: HandlerFailure | None = None
        self.handled = 0
        self.retried = 0
        self.given_up = 0

    # The polling thread

    def add(self, records: Sequence[ConsumerRecord]) -> None:
        with self._lock:
            self._tracker.add(records)
            self._work_is_there.notify(min(self._idle_workers, self._tracker.ready))

    @property
    def incomplete(self) -> int:
        return self._tracker.incomplete

    def wait_until(self, is_so: Callable[[WorkTracker], bool], timeout_s: float) -> bool:
        """Wait for work to be done until it is so, or a worker failed, or the time is over; whether it is so."""
        deadline = self._clock.monotonic() + timeout_s
        with self._lock:
            self._is_watched = True
            try:
                while not is_so(self._tracker):
                    left = deadline - self._clock.monotonic()
                    if left <= 0 or self.failure is not None:
                        return False
                    self._work_is_done.wait(left)
                return True
            finally:
                self._is_watched = False

    def committable(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        with self._lock:
            return self._tracker.committable(partitions)

    def note_committed(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        with self._lock:
            self._tracker.note_committed(offsets)

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            self._tracker.drop(partitions)

    def close(self) -> None:
        """No work begins from here on."""
        with self._lock:
            self._closing = True
            self._work_is_there.notify_all()

    # Workers

    @property
    def is_closing(self) -> bool:
        return self._closing or self.failure is not None

    def take(self) -> Work | None:
        """What may begin now, without waiting."""
        with self._lock:
            return None if self.is_closing else self._tracker.next_work(self._clock.monotonic())

    def seconds_until_due(self) -> float | None:
        """How long until something that failed is tried again; None where nothing is."""
        with self._lock:
            due = self._tracker.next_due()
        return None if due is None else max(0.0, due - self._clock.monotonic())

    def next_work(self) -> Work | None:
        """Wait for work; None when there is to be no more."""
        with self._lock:
            while not self.is_closing:
                now = self._clock.monotonic()
                work = self._tracker.next_work(now)
                if work is not None:
                    return work
                due = self._tracker.next_due()
                self._idle_workers += 1
                try:
                    self._work_is_there.wait(None if due is None else max(0.0, due - now))
                finally:
                    self._idle_workers -= 1
            return None

    def finish(self, work: Work, *, given_up: bool = False) -> None:
        with self._lock:
            self._tracker.finish(work)
            self.handled += 1
            self.given_up += given_up
            if self._is_watched:
                self._work_is_done.notify_all()

    def retry(self, work: Work, delay_s: float) -> None:
        with self._lock:
            self.retried += 1
            self._tracker.retry_at(work, self._clock.monotonic() + delay_s)
            # A worker that waits for new work has to wait for this instead.
            self._work_is_there.notify(1)

    def abandon(self, work: Work, error: BaseException) -> None:
        """The work stays incomplete, and no other begins."""
        with self._lock:
            self._tracker.abandon(work)
            if self.failure is None:
                self.failure = HandlerFailure(work.record, error)
            self._work_is_there.notify_all()
            self._work_is_done.notify_all()


class HandlerFailure:
    __slots__ = ("error", "record")

    def __init__(self, record: ConsumerRecord, error: BaseException) -> None:
        self.record = record
        self.error = error
