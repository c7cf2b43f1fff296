"""Records on their way: queues of batches by partition, and the memory that they share (hot: compiled by mypyc).

Programs' threads append under one lock, which is never held for longer than it takes to encode a record; the engine
takes what is ready (`draining.py`), and brings back what became of it.
"""

from __future__ import annotations

from _thread import LockType
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from mypy_extensions import i64

from braidlog.client.producer.accumulator.buffer_pool import BufferPool
from braidlog.client.producer.accumulator.limits import AccumulatorLimits
from braidlog.client.producer.accumulator.partition_queue import PartitionChooser, PartitionQueue, TopicQueues
from braidlog.client.producer.accumulator.pending_send import PendingSend
from braidlog.client.producer.accumulator.producer_batch import Guard, ProducerBatch, Waiter
from braidlog.client.producer.accumulator.producer_id_state import ProducerIdState
from braidlog.client.producer.delivery import CompletionLatch, Delivery, latch_for
from braidlog.core.clock import Clock
from braidlog.wire.records.encoding import write_record_parts

# Memory is reserved in steps, so that many partitions with little to send do not each hold a whole batch's.
_STEP: Final = 16_384
_LONG_BACKLOG: Final = 262_144


class TransactionHooks(Protocol):
    """What the queues ask of transactions."""

    def on_first_record(self, topic: str, partition: int) -> None: ...

    def may_send(self, topic: str, partition: int) -> bool: ...


class RecordAccumulator:
    def __init__(
        self,
        limits: AccumulatorLimits,
        producer_id_state: ProducerIdState,
        clock: Clock,
        chooser: PartitionChooser,
        wake: Callable[[], object],
        *,
        ignore_keys: bool = False,
    ) -> None:
        self.limits = limits
        self.producer_id_state = producer_id_state
        self.clock = clock
        self.guard = Guard()
        self.lock = self.guard.lock
        self.pool = BufferPool(limits.memory, limits.batch_size)
        self.topics: dict[str, TopicQueues] = {}
        # Queues that have batches, the one to be served first in front.
        self.active: list[PartitionQueue] = []
        # What is not done, oldest first.
        self.incomplete: dict[int, ProducerBatch] = {}
        # The program's own choice of partitions, for records that had to wait for metadata; none: by key.
        self.partitioner: Any = None
        self.transactions: TransactionHooks | None = None
        # Counts the transactions begun.
        self.transaction: i64 = 0
        # Every `send` raises this while it is set.
        self.refusal: Exception | None = None
        # Everything is ready, whatever it lingers for: somebody flushes, or the producer closes.
        self.flushing: i64 = 0
        # Bytes of batches that are closed and not yet taken.
        self.backlog: i64 = 0
        # A batch was closed while the backlog was long: the program's thread should let the engine work.
        self.is_backlogged = False
        self.backlog_long: i64 = max(_LONG_BACKLOG, 4 * limits.batch_size)
        # Threads that do so, until the backlog is half as long.
        self.throttled: list[LockType] = []
        # Requests under way: while there are none, it is not the engine that the backlog waits for.
        self.in_flight_requests: i64 = 0
        # Records that wait for metadata or memory where a thread must not, by topic, in order.
        self.pending_sends: dict[str, deque[PendingSend]] = {}
        self.records_accepted: i64 = 0
        self.records_written: i64 = 0
        self._step: i64 = min(_STEP, max(limits.batch_size, 1))
        self._serial: i64 = 0
        self._chooser = chooser
        self._ignore_keys = ignore_keys
        self._wake = wake
        # The engine has been called and did not look yet.
        self._wakeup_pending = False
        # Something changed that the engine has not seen.
        self.must_wake = False

    # Programs' threads, under the lock

    def append(
        self, queue: PartitionQueue, timestamp: i64, key: bytes | None, value: bytes | None, headers: bytes, size: i64
    ) -> Delivery | None:
        """Write a record of at most `size` bytes into the queue's open batch; none when memory is short."""
        batch = queue.open
        if batch is None or batch.writer is None or len(batch.writer) + size > batch.room:
            batch = self._batch_with_room(queue, size)
            if batch is None:
                return None
        writer = batch.writer
        assert writer is not None
        index = batch.count
        if index == 0:
            batch.base_timestamp = timestamp
            batch.max_timestamp = timestamp
        elif timestamp > batch.max_timestamp:
            batch.max_timestamp = timestamp
        write_record_parts(writer, 0, timestamp - batch.base_timestamp, index, key, value, headers)
        batch.count = index + 1
        return Delivery(
            batch,
            index,
            timestamp,
            -1 if key is None else len(key),
            -1 if value is None else len(value),
        )

    def needed(self, size: i64) -> i64:
        """Memory that a new batch for a record of this size takes at first."""
        return size if size > self._step else self._step

    def _batch_with_room(self, queue: PartitionQueue, size: i64) -> ProducerBatch | None:
        """The open batch with more memory, or a new one; none when there is too little."""
        batch = queue.open
        if batch is not None and batch.writer is not None:
            wanted: i64 = len(batch.writer) + size
            if wanted <= self.limits.batch_size:
                step = wanted - batch.reserved
                if step < self._step:
                    step = self._step
                if self.pool.reserve(step):
                    batch.reserved += step
                    batch.room = min(batch.reserved, self.limits.batch_size)
                    return batch
            self.close_batch(queue, batch)
        need = self.needed(size)
        if not self.pool.reserve(need):
            self.must_wake = True
            return None
        return self.open_batch(queue, need)

    def open_batch(self, queue: PartitionQueue, reserved: i64) -> ProducerBatch:
        """A new batch with memory that was reserved."""
        if queue.open is not None:
            self.close_batch(queue, queue.open)
        batch = ProducerBatch(queue.topic.name, queue.partition, queue, self.guard, self.pool.writer())
        batch.reserved = reserved
        # A record larger than the batch size has a batch of its own.
        batch.room = reserved
        queue.open = batch
        self._enqueue(queue, batch)
        return batch

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        batch.split_below = self.limits.batch_size
        batch.created = self.clock.monotonic()
        batch.expires = batch.created + self.limits.delivery_timeout_s
        batch.transactional = self.transactions is not None
        self.register(batch)
        queue.batches.append(batch)
        self.activate(queue)
        if self.transactions is not None and queue.transaction != self.transaction:
            queue.transaction = self.transaction
            self.transactions.on_first_record(queue.topic.name, queue.partition)

    def register(self, batch: ProducerBatch) -> None:
        self._serial += 1
        batch.serial = self._serial
        batch.order = self._serial
        self.incomplete[self._serial] = batch

    def activate(self, queue: PartitionQueue) -> None:
        if not queue.is_active:
            queue.is_active = True
            self.active.append(queue)
            self.must_wake = True

    def close_batch(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """No more records; the queue's first to be closed is worth a call, the others the engine sees by itself."""
        batch.closed = True
        queue.open = None
        writer = batch.writer
        batch.raw_size = len(batch.body) if writer is None else len(writer)
        self.backlog += batch.raw_size
        if queue.batches[0] is batch:
            self.must_wake = True
        if self.backlog > self.backlog_long:
            self.is_backlogged = True

    def place(
        self,
        topic: TopicQueues,
        partition: i64,
        timestamp: i64,
        key: bytes | None,
        value: bytes | None,
        headers: bytes,
        size: i64,
    ) -> Delivery | None:
        """Choose the partition and append; none when memory is short, or there is no such partition."""
        queue = topic.route(partition, key)
        if queue is None:
            return None
        if partition < 0 and (key is None or topic.ignore_keys):
            # Records without a key move on when a batch is full, or where nobody can take it (KIP-794).
            topic.sticky_bytes += size
            if queue.leader < 0 or (topic.sticky_bytes >= self.limits.batch_size and self._is_full(queue, size)):
                queue = topic.switch()
                if queue is None:
                    return None
                topic.sticky_bytes = size
        return self.append(queue, timestamp, key, value, headers, size)

    def _is_full(self, queue: PartitionQueue, size: i64) -> bool:
        batch = queue.open
        return batch is None or batch.writer is None or len(batch.writer) + size > self.limits.batch_size

    def place_granted(
        self,
        topic: TopicQueues,
        partition: i64,
        timestamp: i64,
        key: bytes | None,
        value: bytes | None,
        headers: bytes,
        size: i64,
        granted: i64,
    ) -> Delivery | None:
        """As `place`, with memory that was waited for."""
        queue = topic.route(partition, key)
        if queue is None:
            self.pool.release(granted)
            return None
        batch = queue.open
        if batch is not None and batch.writer is not None and len(batch.writer) + size <= batch.room:
            self.pool.release(granted)
        else:
            self.open_batch(queue, granted)
        return self.append(queue, timestamp, key, value, headers, size)

    def place_prepared(self, queue: PartitionQueue, prepared: ProducerBatch) -> None:
        """A whole batch whose memory is reserved, behind what the partition has."""
        open_batch = queue.open
        if open_batch is not None:
            self.close_batch(queue, open_batch)
        self._enqueue(queue, prepared)
        self.close_batch(queue, prepared)

    # Without the lock

    def wake_if_needed(self) -> None:
        """Wake the engine if something changed that it should look at."""
        if self.must_wake:
            self.must_wake = False
            self.call()

    def call(self) -> None:
        if not self._wakeup_pending:
            self._wakeup_pending = True
            self._wake()

    def release_throttled(self) -> None:
        """The engine's turn is over: threads that rest may go on if the backlog is short enough."""
        if len(self.throttled) > 0 and (2 * self.backlog <= self.backlog_long or self.in_flight_requests == 0):
            throttled = self.throttled
            self.throttled = []
            for latch in throttled:
                latch.release()

    def wakeup_received(self) -> None:
        """The engine looks now: what happens from here on is worth another call."""
        self._wakeup_pending = False

    # The engine

    def learn(self, name: str, view: Any, topic_id: bytes, leaders: list[int], epochs: list[int], now: float) -> None:
        """What metadata says of a topic; leaders by partition, -1 where there is none."""
        self.lock.acquire()
        try:
            topic = self.topics.get(name)
            if topic is None:
                topic = TopicQueues(name, self._chooser, self._ignore_keys)
                self.topics[name] = topic
            topic.view = view
            topic.topic_id = topic_id
            topic.grow(len(leaders))
            for at in range(len(leaders)):
                queue = topic.queues[at]
                if leaders[at] < 0 and queue.leader >= 0:
                    queue.leaderless_since = now
                queue.leader = leaders[at]
                queue.leader_epoch = epochs[at]
        finally:
            self.lock.release()

    def unlearn(self, name: str, now: float) -> None:
        """The topic is not there now: what waits for it waits for its return."""
        topic = self.topics.get(name)
        if topic is not None:
            for queue in topic.queues:
                if queue.leader >= 0:
                    queue.leader = -1
                    queue.leaderless_since = now

    def reenqueue(self, batch: ProducerBatch, retry_at: float) -> None:
        """To be sent again, not before `retry_at`."""
        self.lock.acquire()
        try:
            queue = batch.queue
            assert queue is not None
            batch.in_flight = False
            batch.retry_at = retry_at
            self.backlog += batch.raw_size
            queue.reenqueue(batch)
            self.activate(queue)
        finally:
            self.lock.release()

    def acknowledge(self, batch: ProducerBatch, base_offset: i64, append_time: i64) -> list[Waiter] | None:
        """A broker has it; those to be told."""
        if batch.is_done or batch.parts is not None:
            # It ran out of time meanwhile, and its records were told so.
            return None
        self.lock.acquire()
        try:
            if batch.queue is not None:
                self.producer_id_state.acknowledged(batch.queue, batch, base_offset)
            waiters = self.finish(batch, base_offset, append_time, None, None)
        finally:
            self.lock.release()
        self.records_written += batch.count
        return waiters

    def finish(
        self,
        batch: ProducerBatch,
        base_offset: i64,
        append_time: i64,
        error: Exception | None,
        record_errors: dict[int, str] | None,
    ) -> list[Waiter] | None:
        """Under the lock: a batch is done; those to be told, once the lock is released."""
        if self.incomplete.pop(batch.serial, None) is None:
            return None
        writer = batch.writer
        waiters = batch.finish(base_offset, append_time, error, record_errors)
        if writer is not None:
            self.pool.recycle(writer)
        queue = batch.queue
        if queue is not None and queue.open is batch:
            queue.open = None
        if self.pool.release(batch.reserved):
            self.must_wake = True
        batch.reserved = 0
        return waiters

    def pending(self) -> list[ProducerBatch]:
        return list(self.incomplete.values())

    def flush_latch(self) -> CompletionLatch | None:
        """Released when everything accepted until now is done; none when nothing is under way."""
        self.lock.acquire()
        try:
            return latch_for(list(self.incomplete.values()))
        finally:
            self.lock.release()

    @property
    def has_pending(self) -> bool:
        return len(self.incomplete) > 0

    def refuse(self, error: Exception | None) -> None:
        """Every later `send` raises the error, until it is taken back with none."""
        self.refusal = error

    def check_accepting(self) -> None:
        """With or without the lock, which after a fork may never be released: there it is asked without it first."""
        refusal = self.refusal
        if refusal is not None:
            # One error for all: it must not gather, and keep, the frames of everybody who met it.
            raise refusal.with_traceback(None)

    def begin_transaction(self) -> None:
        """A transaction began: each partition's next record is its first."""
        self.transaction += 1

    def stop_lingering(self, more: bool) -> None:
        """Make everything ready from now on, or take that back."""
        self.lock.acquire()
        try:
            self.flushing += 1 if more else -1
            # Whatever comes later calls by itself.
            waits = len(self.active) > 0 or len(self.pending_sends) > 0
        finally:
            self.lock.release()
        if more and waits:
            self.call()
