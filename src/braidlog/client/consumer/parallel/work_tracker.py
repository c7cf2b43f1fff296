"""What a parallel consumer knows of its work: what may begin, what is under way, and what may be committed.

Pure: the one who calls it holds the lock and knows the time.

    add → [queues] → next_work → under way → finish → position of the partition moves
                        ↑            ↓
                        └─ due ── put_back (after a failure; its ordering key stays held, so nothing overtakes it)
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Hashable, Iterable
from typing import Final, Literal

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.client.consumer.parallel.offset_progress import OffsetProgress
from braidlog.client.consumer.parallel.ordered_queues import OrderedQueues
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.core.types import TopicPartition

Ordering = Literal["key", "partition", "unordered"]
ORDERINGS: Final[tuple[Ordering, ...]] = ("key", "partition", "unordered")


class Work:
    """One record that somebody has to handle."""

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
        self._resting: list[tuple[float, int, Work]] = []
        self._numbers = itertools.count()
        self._under_way: dict[int, Work] = {}
        # How many records of our partitions are not done yet, whether waiting, under way or resting.
        self.undone = 0

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
        self.undone += count
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
        """What may begin now; from here on it is under way."""
        while self._resting and self._resting[0][0] <= now:
            work = heapq.heappop(self._resting)[2]
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
        self._under_way[id(work)] = work
        return True

    def next_due(self) -> float | None:
        """When something that failed is tried again; None where nothing is."""
        return self._resting[0][0] if self._resting else None

    def finish(self, work: Work) -> None:
        """It is done: handled, or given up on purpose."""
        del self._under_way[id(work)]
        if not work.progress.is_dropped:
            work.progress.finish(work.record.offset)
            self.undone -= 1
        self._queues.release(work.ordering_key)

    def put_back(self, work: Work, due: float) -> None:
        """It failed and is to be tried again; what is behind it with its ordering key waits."""
        del self._under_way[id(work)]
        if work.progress.is_dropped:
            self._queues.release(work.ordering_key)
        else:
            heapq.heappush(self._resting, (due, next(self._numbers), work))

    def abandon(self, work: Work) -> None:
        """It failed for good: its offset stays undone, its ordering key held."""
        del self._under_way[id(work)]

    # Offsets out

    def committable(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The positions that the group has not been told, of these partitions or of all."""
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
        """They are another's now: what waits is forgotten, what is under way moves no position any more."""
        for partition in partitions:
            progress = self._partitions.pop(partition, None)
            if progress is not None:
                progress.is_dropped = True
                self.undone -= progress.undone

    def undone_of(self, partitions: Iterable[TopicPartition]) -> int:
        return sum(self._partitions[each].undone for each in partitions if each in self._partitions)

    @property
    def under_way(self) -> int:
        """How many are in handlers' hands, those of dropped partitions too."""
        return len(self._under_way)

    @property
    def ready(self) -> int:
        return self._queues.ready
