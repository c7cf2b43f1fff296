"""What waits for one partition, and which partition a record of a topic goes to (hot: compiled by mypyc)."""

from __future__ import annotations

from collections import deque
from typing import Any, Protocol

from mypy_extensions import i64

from braidlog.client.producer.accumulator.producer_batch import NO_SEQUENCE, ProducerBatch
from braidlog.wire.records.key_hash import partition_for_key

NO_LEADER = -1


class PartitionQueue:
    """Batches in the order they are to be written; the last may still be open.

    With idempotence, sequences are given as batches are taken, and `in_flight` has the taken ones that are not done,
    those waiting for a retry included, by sequence: whatever is sent again goes before what was never sent.
    """

    __slots__ = (
        "batches", "in_flight", "is_active", "last_acked_offset", "last_acked_sequence", "leader", "next_sequence",
        "open", "partition", "producer_epoch", "producer_id", "sequenced", "topic", "transaction", "under_way",
        "unresolved",
    )  # fmt: skip

    def __init__(self, topic: TopicQueues, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.batches: deque[ProducerBatch] = deque()
        self.open: ProducerBatch | None = None
        # In the accumulator's list of queues that have batches.
        self.is_active = False
        self.leader: i64 = NO_LEADER
        # Requests under way that carry a batch of this partition.
        self.under_way: i64 = 0
        # Idempotence (see producer_id_state.py).
        self.producer_id: i64 = -1
        self.producer_epoch: i64 = -1
        self.next_sequence: i64 = 0
        # Batches that got a sequence.
        self.sequenced: i64 = 0
        self.last_acked_sequence: i64 = NO_SEQUENCE
        self.last_acked_offset: i64 = -1
        self.in_flight: list[ProducerBatch] = []
        # A batch ran out of time after it was sent: whether the broker has it is not known.
        self.unresolved = False
        # The last transaction that had a record of this partition.
        self.transaction: i64 = -1

    def __repr__(self) -> str:
        return f"<PartitionQueue {self.topic.name}-{self.partition}, {len(self.batches)} batches>"

    def reenqueue(self, batch: ProducerBatch) -> None:
        """In front again, but behind those that come before it."""
        at = 0
        for waiting in self.batches:
            if batch.comes_before(waiting):
                break
            at += 1
        self.batches.insert(at, batch)


class PartitionChooser(Protocol):
    """Which partition records without a key stick to."""

    def current(self, topic: str, view: Any) -> int: ...

    def switch(self, topic: str, view: Any, queued: list[int]) -> int:
        """`queued[i]` batches wait for partition i, -1 where it has no leader."""
        ...


class TopicQueues:
    __slots__ = ("chooser", "count", "ignore_keys", "name", "queues", "sticky", "sticky_bytes", "topic_id", "view")

    def __init__(self, name: str, chooser: PartitionChooser, ignore_keys: bool) -> None:
        self.name = name
        self.topic_id: bytes = bytes(16)
        # The topic as metadata has it, for those who choose partitions.
        self.view: Any = None
        self.queues: list[PartitionQueue] = []
        # Partitions that the topic has now; queues of a deleted predecessor may be more.
        self.count: i64 = 0
        self.chooser = chooser
        self.ignore_keys = ignore_keys
        self.sticky: PartitionQueue | None = None
        # Written to the sticky partition since it was chosen.
        self.sticky_bytes: i64 = 0

    def grow(self, count: int) -> None:
        while len(self.queues) < count:
            self.queues.append(PartitionQueue(self, len(self.queues)))
        if count < self.count:
            self.sticky = None
        self.count = count

    def route(self, partition: i64, key: bytes | None) -> PartitionQueue | None:
        """The partition's queue; none where there is no such partition."""
        if partition >= 0:
            return self.queues[partition] if partition < self.count else None
        if key is not None and not self.ignore_keys:
            return self.queues[partition_for_key(key, self.count)]
        sticky = self.sticky
        return sticky if sticky is not None else self._stick(False)

    def switch(self) -> PartitionQueue | None:
        """Stick to another partition."""
        return self._stick(True)

    def _stick(self, move: bool) -> PartitionQueue | None:
        if self.count <= 0:
            return None
        if move:
            queued: list[int] = []
            for queue in self.queues:
                queued.append(len(queue.batches) if queue.leader >= 0 else -1)
            chosen = self.chooser.switch(self.name, self.view, queued)
        else:
            chosen = self.chooser.current(self.name, self.view)
        self.sticky = self.queues[chosen]
        self.sticky_bytes = 0
        return self.sticky
