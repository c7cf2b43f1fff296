"""What a parallel consumer knows of its work: what may begin, what is in progress, and what may be committed.

Pure: the caller holds the lock and gives the time.

    add → [queues] → next_work → in progress → finish → position of the partition moves
                        ↑            ↓
                        └─ due ── retry_at (after a failure; its ordering key stays held, so nothing overtakes it)
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Hashable, Iterable
from typing import Final, Generic, Literal, TypeVar

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.core.types import TopicPartition

Ordering = Literal["key", "partition", "unordered"]
ORDERINGS: Final[tuple[Ordering, ...]] = ("key", "partition", "unordered")

T = TypeVar("T")


class Work:
    """One record to be handled."""

    __slots__ = ("attempts", "ordering_key", "partition", "progress", "record")

    def __init__(
        self, record: ConsumerRecord, partition: TopicPartition, progress: OffsetProgress, ordering_key: Hashable | None
    ) -> None:
        self.record = record
        self.partition = partition
        self.progress = progress
        self.ordering_key = ordering_key
        # How often the handler has failed with it.
        self.attempts = 0


class WorkTracker:
    def __init__(self, ordering: Ordering) -> None:
        if ordering not in ORDERINGS:
            raise ValueError(f"ordering is {ordering!r}; there are {', '.join(map(repr, ORDERINGS))}")
        self._ordering = ordering
        self._queues: OrderedQueues[Work] = OrderedQueues()
        self._partitions: dict[TopicPartition, OffsetProgress] = {}
        # (when, tie-breaker, work) of what failed and is tried again; it holds its ordering key meanwhile.
        self._retrying: list[tuple[float, int, Work]] = []
        self._numbers = itertools.count()
        self._in_progress: dict[int, Work] = {}
        # How many records of our partitions are not done yet, whether waiting, in progress or to be retried.
        self.incomplete = 0

    # Records in

    def add(self, records: Iterable[ConsumerRecord]) -> int:
        """Take on what was polled; how many records it was."""
        count = 0
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            progress = self._partitions.get(partition)
            if progress is not None and not progress.may_take(record.offset):
                # The position was set back: what was taken before belongs to a reading that is over.
                self.drop([partition])
                progress = None
            if progress is None:
                progress = self._partitions[partition] = OffsetProgress()
            progress.take(record.offset, record.leader_epoch)
            ordering_key = self._ordering_key_of(partition, record)
            self._queues.add(ordering_key, Work(record, partition, progress, ordering_key))
            count += 1
        self.incomplete += count
        return count

    def _ordering_key_of(self, partition: TopicPartition, record: ConsumerRecord) -> Hashable | None:
        if self._ordering == "unordered":
            return None
        if self._ordering == "partition":
            return partition
        key = record.key
        if key is None:
            # Nothing says what it would have to stay in order with.
            return None
        try:
            hash(key)
        except TypeError:
            key = repr(key)
        return (partition, key)

    # Work out

    def next_work(self, now: float) -> Work | None:
        """What may begin now; from here on it is in progress."""
        while self._retrying and self._retrying[0][0] <= now:
            work = heapq.heappop(self._retrying)[2]
            if self._begin(work):
                return work
        while (ready := self._queues.take()) is not None:
            if self._begin(ready):
                return ready
        return None

    def _begin(self, work: Work) -> bool:
        if work.progress.is_dropped:
            self._queues.release(work.ordering_key)
            return False
        self._in_progress[id(work)] = work
        return True

    def next_due(self) -> float | None:
        """When something that failed is tried again; None where nothing is."""
        return self._retrying[0][0] if self._retrying else None

    def finish(self, work: Work) -> None:
        """It is done: handled, or skipped on purpose."""
        del self._in_progress[id(work)]
        if not work.progress.is_dropped:
            work.progress.finish(work.record.offset)
            self.incomplete -= 1
        self._queues.release(work.ordering_key)

    def retry_at(self, work: Work, due: float) -> None:
        """It failed and is to be tried again; what is behind it with its ordering key waits."""
        del self._in_progress[id(work)]
        if work.progress.is_dropped:
            self._queues.release(work.ordering_key)
        else:
            heapq.heappush(self._retrying, (due, next(self._numbers), work))

    def abandon(self, work: Work) -> None:
        """It failed for good: its offset stays incomplete, its ordering key held."""
        del self._in_progress[id(work)]

    # Offsets out

    def committable(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions that are not committed yet, of these partitions or of all."""
        wanted = self._partitions if partitions is None else partitions
        found: dict[TopicPartition, OffsetAndMetadata] = {}
        for partition in wanted:
            progress = self._partitions.get(partition)
            if progress is not None and progress.is_ahead:
                found[partition] = OffsetAndMetadata(progress.position, "", progress.leader_epoch)
        return found

    def note_committed(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        for partition, offset_and_metadata in offsets.items():
            progress = self._partitions.get(partition)
            if progress is not None:
                progress.committed = max(progress.committed, offset_and_metadata.offset)

    # Partitions

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """They are another's now: what waits is forgotten, what is in progress moves no position any more."""
        for partition in partitions:
            progress = self._partitions.pop(partition, None)
            if progress is not None:
                progress.is_dropped = True
                self.incomplete -= progress.incomplete

    def incomplete_of(self, partitions: Iterable[TopicPartition]) -> int:
        return sum(self._partitions[each].incomplete for each in partitions if each in self._partitions)

    @property
    def in_progress(self) -> int:
        """How many the handlers have now, those of dropped partitions too."""
        return len(self._in_progress)

    @property
    def ready(self) -> int:
        return self._queues.ready


class OrderedQueues(Generic[T]):
    """Which piece of work may begin: one queue per key; a key whose work was taken is held until it is released.

    key a   a1 a2 a3        a1 is in progress; a2 becomes ready when it ends
    key b   b1              ready at once, beside a1
    no key  x  y            ready at once, beside everything
    """

    __slots__ = ("_behind", "_ready")

    def __init__(self) -> None:
        # In the order in which it became ready.
        self._ready: deque[T] = deque()
        # Keys that are held, or whose first piece is ready, and what waits behind that.
        self._behind: dict[Hashable, deque[T]] = {}

    def add(self, key: Hashable | None, work: T) -> None:
        if key is None:
            self._ready.append(work)
            return
        behind = self._behind.get(key)
        if behind is None:
            self._behind[key] = deque()
            self._ready.append(work)
        else:
            behind.append(work)

    def take(self) -> T | None:
        """What became ready first; its key is held from now on."""
        return self._ready.popleft() if self._ready else None

    def release(self, key: Hashable | None) -> None:
        """The work of this key has ended: the next of the key is ready."""
        if key is None:
            return
        behind = self._behind[key]
        if behind:
            self._ready.append(behind.popleft())
        else:
            del self._behind[key]

    @property
    def ready(self) -> int:
        return len(self._ready)

    @property
    def is_empty(self) -> bool:
        """Nothing is ready, waiting or held."""
        return not self._ready and not self._behind


class OffsetProgress:
    """How far a partition is while it is ours: offsets are taken in rising order and finished in any.

    taken     10 11 12 14 15        13 is a marker or was compacted away: it is never taken
    done       x     x     x
    position     11                 everything before it is done: the most that may be committed

    Invariant: no offset at or after `position` has been passed over; every taken one before it is done.
    """

    __slots__ = ("_done", "_taken", "committed", "is_dropped", "leader_epoch", "position")

    def __init__(self) -> None:
        # (offset, leader epoch) of what was taken from `position` on.
        self._taken: deque[tuple[int, int]] = deque()
        # Of these, what is done but has something incomplete before it.
        self._done: set[int] = set()
        # The offset to commit; -1 until something was taken.
        self.position = -1
        # Of the last record before `position`.
        self.leader_epoch = -1
        # The position that was committed last.
        self.committed = -1
        # The partition is another's now: what still happens here counts for nothing.
        self.is_dropped = False

    def may_take(self, offset: int) -> bool:
        """Offsets only rise; one that does not is of another reading."""
        return offset > (self._taken[-1][0] if self._taken else self.position - 1)

    def take(self, offset: int, leader_epoch: int = -1) -> None:
        if not self.may_take(offset):
            raise ValueError(f"offset {offset} was taken before")
        if not self._taken:
            # Nothing is open: what lies between is no record to wait for.
            self.position = offset
            if self.committed < 0:
                self.committed = offset
        self._taken.append((offset, leader_epoch))

    def finish(self, offset: int) -> None:
        """An offset that was taken is done, once."""
        if not self._taken or offset != self._taken[0][0]:
            self._done.add(offset)
            return
        done = self._done
        while True:
            first, self.leader_epoch = self._taken.popleft()
            if not self._taken:
                self.position = first + 1
                return
            self.position = self._taken[0][0]
            if self.position not in done:
                return
            done.remove(self.position)

    @property
    def incomplete(self) -> int:
        """How many were taken and are not done."""
        return len(self._taken) - len(self._done)

    @property
    def is_ahead(self) -> bool:
        """Whether there is something to commit."""
        return self.position > self.committed
