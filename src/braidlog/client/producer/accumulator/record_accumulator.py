"""Records on their way: queues of batches by partition, and the memory that they share (hot: compiled by mypyc).

Programs' threads append under one lock, which is never held for longer than it takes to encode a record; the engine
drains what is ready, and reports what became of it.
"""

from __future__ import annotations

from _thread import LockType
from collections.abc import Callable
from typing import Any, Final, Protocol

from librt.strings import BytesWriter
from mypy_extensions import i64

from braidlog.client.errors import BufferFullError, DeliveryTimeoutError, RecordTooLargeError
from braidlog.client.producer.accumulator.buffer_pool import BufferPool
from braidlog.client.producer.accumulator.partition_queue import (
    NO_LEADER,
    PartitionChooser,
    PartitionQueue,
    TopicQueues,
)
from braidlog.client.producer.accumulator.pending_sends import PendingSends
from braidlog.client.producer.accumulator.producer_batch import (
    NEVER,
    NO_SEQUENCE,
    Guard,
    Part,
    ProducerBatch,
    Waiter,
)
from braidlog.client.producer.accumulator.producer_id_state import ProducerIdState
from braidlog.client.producer.delivery import CompletionLatch, Delivery, latch_for
from braidlog.core.clock import Clock
from braidlog.wire.records.batch import HEADER_SIZE
from braidlog.wire.records.encoding import write_record, write_record_parts
from braidlog.wire.records.reading import Record, read_records

# Beside key, value and headers: lengths, deltas and attributes at their longest.
RECORD_OVERHEAD: Final = 32
# Memory is reserved in steps, so that many partitions with little to send do not each hold a whole batch's.
_STEP: Final = 16_384
_LONG_BACKLOG: Final = 262_144
# The capacity of a broker that is not connected.
_NOT_CONNECTED: Final = -1


class AccumulatorLimits:
    """The settings that the accumulator keeps to."""

    def __init__(
        self,
        batch_size: int = 262_144,
        linger_s: float = 0.0,
        max_request: int = 1_048_576,
        memory: int = 33_554_432,
        delivery_timeout_s: float = 120.0,
        max_block_s: float = 60.0,
        max_in_flight: int = 5,
    ) -> None:
        self.batch_size: i64 = batch_size
        self.linger_s = linger_s
        self.max_request: i64 = max_request
        self.memory: i64 = memory
        self.delivery_timeout_s = delivery_timeout_s
        self.max_block_s = max_block_s
        self.max_in_flight: i64 = max_in_flight
        # A larger record cannot be sent at all.
        self.largest_record: i64 = min(self.max_request - HEADER_SIZE, self.memory)

    def too_large(self, size: i64) -> RecordTooLargeError:
        """The error for a record larger than `largest_record`."""
        if size + HEADER_SIZE > self.max_request:
            return RecordTooLargeError(
                f"a record of {size + HEADER_SIZE} bytes is larger than max.request.size ({self.max_request}); "
                "raise that (and the topic's max.message.bytes), or send less"
            )
        return RecordTooLargeError(
            f"a record of {size} bytes does not fit buffer.memory ({self.memory}); raise it, or send less"
        )


class Drained:
    """What `drain` found: batches by broker, and what has to happen for the others."""

    def __init__(self) -> None:
        self.requests: dict[int, list[ProducerBatch]] = {}
        # Brokers with something ready that there is no connection to.
        self.unconnected: list[int] = []
        # Topics with something ready whose leader is not known.
        self.leaderless: list[str] = []
        # When to look again, if nothing happens before.
        self.look_at = NEVER


class TransactionHooks(Protocol):
    """What the accumulator asks of transactions."""

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
        self.guard = Guard(clock)
        self.lock = self.guard.lock
        self.pool = BufferPool(limits.memory, limits.batch_size)
        self.topics: dict[str, TopicQueues] = {}
        # Queues that have batches, the one to be served first in front.
        self.active: list[PartitionQueue] = []
        # Batches that are not done, oldest first.
        self.incomplete: dict[int, ProducerBatch] = {}
        # The program's own choice of partitions, for records that had to wait for metadata; none: by key.
        self.partitioner: Any = None
        self.transactions: TransactionHooks | None = None
        # Counts the transactions begun.
        self.transaction: i64 = 0
        # Every `send` raises this while it is set.
        self.refusal: Exception | None = None
        # While there are any, batches are ready without lingering; a closing producer flushes, too.
        self.flushes_in_progress: i64 = 0
        # Bytes of batches that are closed and not yet taken.
        self.backlog: i64 = 0
        # A batch was closed while the backlog was long: the program's thread should give way to the engine.
        self.is_backlogged = False
        self.backlog_long: i64 = max(_LONG_BACKLOG, 4 * limits.batch_size)
        # Threads that do so, until the backlog is half as long.
        self.throttled: list[LockType] = []
        # Requests under way: while there are none, it is not the engine that the backlog waits for.
        self.in_flight_requests: i64 = 0
        self.records_written: i64 = 0
        self._step: i64 = min(_STEP, max(limits.batch_size, 1))
        self._serial: i64 = 0
        self._chooser = chooser
        self._ignore_keys = ignore_keys
        self._wake = wake
        # The engine was woken and has not looked yet.
        self._wakeup_pending = False
        # Something changed that the engine has not seen.
        self.must_wake = False
        self.pending_sends = PendingSends(self)

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

    def buffer_full(self, topic: str) -> BufferFullError:
        limits = self.limits
        return BufferFullError(
            f"no memory for a record of {topic} within max.block.ms ({limits.max_block_s:g} s): buffer.memory "
            f"({limits.memory} bytes) is full of records that are not acknowledged yet; are the brokers reachable? "
            "If so, wait for deliveries as you send, or raise buffer.memory"
        )

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
        """No more records. Only the queue's first batch wakes the engine, which sees the others by itself."""
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
            # Records without a key move on when a batch is full, or where a partition has no leader (KIP-794).
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
            self.wake()

    def wake(self) -> None:
        if not self._wakeup_pending:
            self._wakeup_pending = True
            self._wake()

    def release_throttled(self) -> None:
        """The engine's turn is over: throttled threads may go on if the backlog is short enough."""
        if len(self.throttled) > 0 and (2 * self.backlog <= self.backlog_long or self.in_flight_requests == 0):
            throttled = self.throttled
            self.throttled = []
            for latch in throttled:
                latch.release()

    def wakeup_received(self) -> None:
        """The engine looks now: what happens from here on wakes it again."""
        self._wakeup_pending = False

    # Metadata

    def update_topic(self, name: str, view: Any, topic_id: bytes, leaders: list[int]) -> None:
        """Take over what metadata says of a topic; leaders by partition, -1 where there is none."""
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
                topic.queues[at].leader = leaders[at]
        finally:
            self.lock.release()

    def mark_leaderless(self, name: str) -> None:
        """The topic is not there now: what is queued for it waits until it is back."""
        topic = self.topics.get(name)
        if topic is not None:
            for queue in topic.queues:
                queue.leader = NO_LEADER

    # Draining

    def drain(self, now: float, capacity: dict[int, int]) -> Drained:
        """Take at most one batch a partition, and one request a broker.

        `capacity` has the requests that each connected broker may still get.
        """
        found = Drained()
        producer_id_state = self.producer_id_state
        if producer_id_state.enabled and (producer_id_state.wants_id or producer_id_state.producer_id < 0):
            return found
        sizes: dict[int, int] = {}
        waiting: list[PartitionQueue] = []
        served: list[PartitionQueue] = []
        self.lock.acquire()
        try:
            eager = self.flushes_in_progress > 0 or len(self.pool.waiters) > 0 or self.limits.linger_s <= 0.0
            for queue in self.active:
                if len(queue.batches) == 0:
                    queue.is_active = False
                    continue
                first = queue.batches[0]
                if not self._is_ready(queue, first, now, eager, found):
                    waiting.append(queue)
                    continue
                room = capacity.get(queue.leader, _NOT_CONNECTED)
                if room <= 0:
                    if room == _NOT_CONNECTED and queue.leader not in found.unconnected:
                        found.unconnected.append(queue.leader)
                    waiting.append(queue)
                    continue
                size: i64 = first.raw_size if first.closed or first.writer is None else len(first.writer)
                taken: i64 = sizes.get(queue.leader, 0)
                if taken > 0 and taken + size > self.limits.max_request:
                    waiting.append(queue)
                    continue
                sizes[queue.leader] = taken + size + 1
                self._take(queue, first)
                if queue.leader not in found.requests:
                    found.requests[queue.leader] = []
                found.requests[queue.leader].append(first)
                if len(queue.batches) > 0:
                    served.append(queue)
                else:
                    queue.is_active = False
            # Queues that were served go behind those that still wait.
            waiting.extend(served)
            self.active = waiting
            # Whatever changed before was seen here.
            self.must_wake = False
        finally:
            self.lock.release()
        return found

    def _is_ready(self, queue: PartitionQueue, first: ProducerBatch, now: float, eager: bool, found: Drained) -> bool:
        if first.retry_at > now:
            found.look_at = min(found.look_at, first.retry_at)
            return False
        if not (eager or first.closed or len(queue.batches) > 1):
            ready_at = first.created + self.limits.linger_s
            if ready_at > now:
                found.look_at = min(found.look_at, ready_at)
                return False
        if queue.leader < 0:
            if queue.topic.name not in found.leaderless:
                found.leaderless.append(queue.topic.name)
            return False
        if self.producer_id_state.enabled:
            if not self.producer_id_state.may_drain(queue):
                return False
        elif self.limits.max_in_flight == 1 and queue.under_way > 0:
            # The batch under way may have to be sent again.
            return False
        transactions = self.transactions
        return transactions is None or transactions.may_send(queue.topic.name, queue.partition)

    def _take(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if not batch.closed:
            self.close_batch(queue, batch)
        queue.batches.popleft()
        self.backlog -= batch.raw_size
        self.producer_id_state.assign_sequence(queue, batch)
        batch.in_flight = True
        batch.attempts += 1
        queue.under_way += 1

    def expire_batches(self, now: float) -> tuple[list[ProducerBatch], list[Waiter]]:
        """Fail what was not acknowledged in time, in flight or not."""
        expired: list[ProducerBatch] = []
        to_notify: list[Waiter] = []
        self.lock.acquire()
        try:
            for batch in list(self.incomplete.values()):
                if batch.is_placeholder:
                    continue
                if batch.expires > now:
                    break
                expired.append(batch)
            for batch in expired:
                self._drop(batch, self._out_of_time(batch), to_notify)
        finally:
            self.lock.release()
        return expired, to_notify

    def next_expiry(self) -> float:
        for batch in self.incomplete.values():
            if not batch.is_placeholder:
                return batch.expires
        return NEVER

    def _out_of_time(self, batch: ProducerBatch) -> DeliveryTimeoutError:
        tried = "it was never sent" if batch.attempts == 0 else f"sent {batch.attempts} times"
        doubt = "; the broker may have it all the same" if batch.in_flight else ""
        reason = "" if batch.last_problem is None else f"; last problem: {batch.last_problem}"
        return DeliveryTimeoutError(
            f"{batch.count} records for {batch.topic}-{batch.partition} were not acknowledged within "
            f"delivery.timeout.ms ({self.limits.delivery_timeout_s:g} s): {tried}{doubt}{reason}"
        )

    def _drop(self, batch: ProducerBatch, error: Exception, to_notify: list[Waiter]) -> None:
        """Under the lock: fail a batch wherever it is."""
        queue = batch.queue
        if queue is not None:
            if not batch.in_flight and batch in queue.batches:
                queue.batches.remove(batch)
                if batch.closed:
                    self.backlog -= batch.raw_size
            self.producer_id_state.failed(queue, batch, in_doubt=batch.attempts > 0)
        waiters = self.finish(batch, -1, -1, error, None)
        if waiters is not None:
            to_notify.extend(waiters)

    def abort_batches(self, error: Exception, unsent_only: bool) -> tuple[list[ProducerBatch], list[Waiter]]:
        """Fail everything, or what was never sent; what a broker may have keeps its place in the sequence."""
        failed: list[ProducerBatch] = []
        to_notify: list[Waiter] = []
        self.lock.acquire()
        try:
            for batch in list(self.incomplete.values()):
                if unsent_only and (batch.in_flight or batch.base_sequence != NO_SEQUENCE):
                    continue
                failed.append(batch)
                self._drop(batch, error, to_notify)
        finally:
            self.lock.release()
        return failed, to_notify

    # Splitting

    def split_and_reenqueue(self, batch: ProducerBatch) -> int:
        """Replace a batch that a broker finds too large by batches at most half as large; how many.

        They keep the order of its records, and are sent next.
        """
        assert batch.head is not None
        records = list(read_records(batch.head + batch.body))
        groups = _groups_below(records, min(batch.split_below, max(batch.raw_size // 2, 1)))
        parts: list[Part] = []
        first = 0
        for group in groups:
            end = first + len(group)
            parts.append(Part(first, end, self._part_of(batch, group), 0))
            first = end
        self.lock.acquire()
        try:
            self._replace(batch, parts)
        finally:
            self.lock.release()
        return len(parts)

    def _part_of(self, batch: ProducerBatch, records: list[Record]) -> ProducerBatch:
        """A closed batch with some of the records of another."""
        writer = BytesWriter()
        part = ProducerBatch(batch.topic, batch.partition, batch.queue, self.guard, writer)
        part.base_timestamp = records[0].timestamp
        part.max_timestamp = max([record.timestamp for record in records])
        for index, record in enumerate(records):
            write_record(
                writer, 0, record.timestamp - part.base_timestamp, index, record.key, record.value, record.headers
            )
        part.count = len(records)
        part.raw_size = len(writer)
        part.closed = True
        part.created = batch.created
        part.expires = batch.expires
        part.split_below = max(batch.split_below // 2, 1)
        part.transactional = batch.transactional
        return part

    def _replace(self, batch: ProducerBatch, parts: list[Part]) -> None:
        """Under the lock: the parts take the batch's place in its queue, its memory and its sequences."""
        queue = batch.queue
        assert queue is not None
        self.incomplete.pop(batch.serial, None)
        batches = [part.batch for part in parts]
        rest = batch.reserved
        for part in parts:
            each = part.batch
            self.register(each)
            each.order = batch.order
            each.order_within = batch.order_within + part.first
            self.backlog += each.raw_size
            each.reserved = min(rest, each.raw_size)
            rest -= each.reserved
        batches[len(batches) - 1].reserved += rest
        batch.reserved = 0
        self.producer_id_state.replace(queue, batch, batches)
        for each in batches:
            queue.reenqueue(each)
        self.activate(queue)
        batch.in_flight = False
        batch.replace(parts)

    # Responses

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
        """A broker has the batch; returns those to notify."""
        if batch.is_done or batch.parts is not None:
            # It ran out of time meanwhile, and its deliveries have failed.
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
        """Under the lock: a batch is done; returns those to notify once the lock is released."""
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

    def flush_latch(self) -> CompletionLatch | None:
        """Released when everything accepted until now is done; none when nothing is under way."""
        self.lock.acquire()
        try:
            return latch_for(list(self.incomplete.values()))
        finally:
            self.lock.release()

    @property
    def has_incomplete(self) -> bool:
        return len(self.incomplete) > 0

    def refuse(self, error: Exception | None) -> None:
        """Every later `send` raises the error, until it is taken back with none."""
        self.refusal = error

    def check_accepting(self) -> None:
        """With or without the lock; callers check without it first, since after a fork it may never be released."""
        refusal = self.refusal
        if refusal is not None:
            # One error for all: it must not collect and keep the frames of every caller.
            raise refusal.with_traceback(None)

    def begin_transaction(self) -> None:
        """A transaction began: each partition's next record is its first."""
        self.transaction += 1

    def begin_flush(self) -> None:
        """Make everything ready from now on, whatever linger.ms says; `end_flush` takes that back."""
        self.lock.acquire()
        try:
            self.flushes_in_progress += 1
            # What comes later wakes the engine by itself.
            has_records = len(self.active) > 0 or self.pending_sends.count > 0
        finally:
            self.lock.release()
        if has_records:
            self.wake()

    def end_flush(self) -> None:
        self.lock.acquire()
        try:
            self.flushes_in_progress -= 1
        finally:
            self.lock.release()


def _groups_below(records: list[Record], limit: i64) -> list[list[Record]]:
    """The records in groups of at most `limit` bytes, but two groups at least."""
    groups: list[list[Record]] = []
    size: i64 = 0
    for record in records:
        weight: i64 = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        for name, value in record.headers:
            weight += len(name) * 3 + len(value or b"") + 10
        if len(groups) == 0 or size + weight > limit:
            groups.append([])
            size = 0
        groups[len(groups) - 1].append(record)
        size += weight
    if len(groups) > 1:
        return groups
    middle = len(records) // 2
    return [records[:middle], records[middle:]]
