"""Lets a record into the queues, or has it wait (hot: compiled by mypyc).

What has to wait, waits here for `max.block.ms` at most; in a thread that runs an event loop its send is
deferred, and the engine appends it later, in order.
"""

from __future__ import annotations

from _thread import allocate_lock
from typing import Final, Protocol

from librt.time import time
from mypy_extensions import i64

from braidlog.client.producer.accumulator.buffer_pool import MemoryWaiter
from braidlog.client.producer.accumulator.partition_queue import PartitionQueue, TopicQueues
from braidlog.client.producer.accumulator.producer_batch import ProducerBatch
from braidlog.client.producer.accumulator.record_accumulator import RECORD_OVERHEAD, RecordAccumulator
from braidlog.client.producer.delivery import Delivery, OnDelivery
from braidlog.core.errors import UserError

# The longest that a thread rests for the engine's sake, when it is far ahead of it.
_THROTTLE_S: Final = 0.005


class MetadataWait(Protocol):
    """What the intake needs of the world when a record has to wait."""

    def runs_loop(self) -> bool:
        """Whether this thread runs an event loop, which must not be kept."""
        ...

    def await_topic(self, topic: str, partition: int, timeout_s: float) -> None:
        """Wait until metadata has the partition (or any, for -1); raises when it does not come."""
        ...


class Backpressure:
    def __init__(self, accumulator: RecordAccumulator, metadata_wait: MetadataWait) -> None:
        self.accumulator = accumulator
        self.metadata_wait = metadata_wait
        self.largest: i64 = accumulator.limits.largest_record

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: i64,
        timestamp: i64,
        headers: bytes,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        size: i64 = RECORD_OVERHEAD + len(headers)
        if key is not None:
            size += len(key)
        if value is not None:
            size += len(value)
        if size > self.largest:
            raise self.accumulator.limits.too_large(size)
        if timestamp < 0:
            timestamp = i64(int(time() * 1000.0))
        accumulator = self.accumulator
        accumulator.check_accepting()
        delivery: Delivery | None = None
        accumulator.lock.acquire()
        try:
            accumulator.check_accepting()
            known = accumulator.topics.get(topic)
            if known is not None and accumulator.pending_sends.count == 0:
                delivery = accumulator.place(known, partition, timestamp, key, value, headers, size)
                if delivery is not None and on_delivery is not None:
                    delivery._call_on_delivery(on_delivery)
        finally:
            accumulator.lock.release()
        if delivery is None:
            return self._append_later(topic, value, key, partition, timestamp, headers, size, on_delivery)
        accumulator.wake_if_needed()
        if accumulator.is_backlogged:
            self._throttle()
        return delivery

    def append_batch(
        self, topic: str, partition: int, body: bytes, count: int, base_timestamp: int, max_timestamp: int
    ) -> Delivery:
        accumulator = self.accumulator
        accumulator.check_accepting()
        size: i64 = len(body)
        if size > self.largest:
            raise accumulator.limits.too_large(size)
        deadline = accumulator.clock.monotonic() + accumulator.limits.max_block_s
        granted = False
        batch: ProducerBatch | None = None
        while batch is None:
            known = accumulator.topics.get(topic)
            if known is None or partition >= known.count:
                remaining = max(deadline - accumulator.clock.monotonic(), 0.0)
                try:
                    self.metadata_wait.await_topic(topic, partition, remaining)
                except BaseException:
                    if granted:
                        self._give_back(size)
                    raise
                continue
            waiter: MemoryWaiter | None = None
            accumulator.lock.acquire()
            try:
                if granted and accumulator.refusal is not None:
                    accumulator.pool.release(size)
                    granted = False
                accumulator.check_accepting()
                if granted or accumulator.pool.reserve(size):
                    batch = prepared_batch(known.queues[partition], accumulator, body, count)
                    batch.base_timestamp = base_timestamp
                    batch.max_timestamp = max_timestamp
                    accumulator.place_prepared(known.queues[partition], batch)
                else:
                    waiter = accumulator.pool.enqueue(size, True)
            finally:
                accumulator.lock.release()
            if waiter is not None:
                self._wait_for_memory(waiter, topic, max(deadline - accumulator.clock.monotonic(), 0.0))
                granted = True
        accumulator.wake_if_needed()
        if accumulator.is_backlogged:
            self._throttle()
        return Delivery(batch, 0, base_timestamp, -1, -1)

    def _wait_for_memory(self, waiter: MemoryWaiter, topic: str, timeout: float) -> None:
        """Return with the memory granted, or raise."""
        accumulator = self.accumulator
        accumulator.wake()
        try:
            granted = waiter.wait(timeout)
        except BaseException:
            self._cancel_wait(waiter)
            raise
        if granted and accumulator.refusal is None:
            return
        self._cancel_wait(waiter)
        accumulator.check_accepting()
        raise accumulator.buffer_full(topic)

    def _cancel_wait(self, waiter: MemoryWaiter) -> None:
        self.accumulator.lock.acquire()
        try:
            self.accumulator.pool.cancel_wait(waiter)
        finally:
            self.accumulator.lock.release()

    def _give_back(self, size: i64) -> None:
        self.accumulator.lock.acquire()
        try:
            self.accumulator.pool.release(size)
        finally:
            self.accumulator.lock.release()

    def _throttle(self) -> None:
        """The backlog is long: hold this thread until the engine has worked some of it off.

        Both need the interpreter, and a thread that never waits would let the engine have it every 5 ms only.
        """
        accumulator = self.accumulator
        accumulator.is_backlogged = False
        if accumulator.in_flight_requests == 0 or self.metadata_wait.runs_loop():
            return
        latch = allocate_lock()
        latch.acquire()
        accumulator.throttled.append(latch)
        latch.acquire(True, _THROTTLE_S)

    def _append_later(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: i64,
        timestamp: i64,
        headers: bytes,
        size: i64,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        if not isinstance(topic, str):
            raise UserError(f"the topic {topic!r} is no text")
        accumulator = self.accumulator
        if self.metadata_wait.runs_loop():
            return accumulator.pending_sends.defer(topic, value, key, partition, timestamp, headers, size, on_delivery)
        deadline = accumulator.clock.monotonic() + accumulator.limits.max_block_s
        while True:
            remaining = max(deadline - accumulator.clock.monotonic(), 0.0)
            known = accumulator.topics.get(topic)
            if known is None or partition >= known.count or known.count == 0:
                self.metadata_wait.await_topic(topic, partition, remaining)
                known = accumulator.topics.get(topic)
                if known is None:
                    continue
            delivery = self._place_or_wait(
                known, value, key, partition, timestamp, headers, size, on_delivery, remaining
            )
            if delivery is not None:
                accumulator.wake_if_needed()
                return delivery

    def _place_or_wait(
        self,
        known: TopicQueues,
        value: bytes | None,
        key: bytes | None,
        partition: i64,
        timestamp: i64,
        headers: bytes,
        size: i64,
        on_delivery: OnDelivery | None,
        timeout: float,
    ) -> Delivery | None:
        """One try, waiting for memory if it takes that; none when the partition is gone."""
        accumulator = self.accumulator
        accumulator.lock.acquire()
        try:
            accumulator.check_accepting()
            delivery = accumulator.place(known, partition, timestamp, key, value, headers, size)
            if delivery is not None and on_delivery is not None:
                delivery._call_on_delivery(on_delivery)
            if delivery is not None or known.route(partition, key) is None:
                return delivery
            waiter = accumulator.pool.enqueue(accumulator.needed(size), True)
        finally:
            accumulator.lock.release()
        self._wait_for_memory(waiter, known.name, timeout)
        accumulator.lock.acquire()
        try:
            # What was granted is used up in any case, so that it cannot get lost.
            delivery = accumulator.place_granted(known, partition, timestamp, key, value, headers, size, waiter.needed)
            if delivery is not None and on_delivery is not None:
                delivery._call_on_delivery(on_delivery)
        finally:
            accumulator.lock.release()
        return delivery


def prepared_batch(queue: PartitionQueue, accumulator: RecordAccumulator, body: bytes, count: int) -> ProducerBatch:
    """A batch whose records came encoded; its memory is reserved."""
    batch = ProducerBatch(queue.topic.name, queue.partition, queue, accumulator.guard, None)
    batch.body = body
    batch.count = count
    batch.reserved = len(body)
    return batch
