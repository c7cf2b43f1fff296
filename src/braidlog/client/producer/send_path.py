"""The path of a record from a program's `send` to its batch, in the caller's thread (hot: compiled by mypyc).

The usual record (bytes or text, a topic that is known, memory to spare) is encoded into its partition's open batch, and
that is all. One that cannot be appended at once waits for `max.block.ms` at most; in a thread that runs an event loop
its send is deferred instead (`PendingSends`).

    Producer.send -> RecordAppender.append -> RecordAccumulator.place -> RecordAccumulator.append
"""

from __future__ import annotations

from _thread import allocate_lock
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol, final

from librt.time import time
from mypy_extensions import i64, mypyc_attr

from braidlog.client.errors import SerializationError
from braidlog.client.producer.accumulator.buffer_pool import MemoryWaiter
from braidlog.client.producer.accumulator.partition_queue import PartitionQueue, TopicQueues
from braidlog.client.producer.accumulator.producer_batch import ProducerBatch
from braidlog.client.producer.accumulator.record_accumulator import RECORD_OVERHEAD, RecordAccumulator
from braidlog.client.producer.delivery import Delivery, Header, OnDelivery
from braidlog.core.clock import SystemClock
from braidlog.core.errors import UserError
from braidlog.wire.records.encoding import NO_HEADERS, encode_headers

Headers = Iterable[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None] | None

# The longest that a thread is held back when it is far ahead of the engine.
_THROTTLE_S: Final = 0.005


class MetadataWait(Protocol):
    """Waiting for metadata, and whether a thread may wait at all."""

    def in_event_loop(self) -> bool:
        """Whether this thread runs an event loop, which must not be blocked."""
        ...

    def await_topic(self, topic: str, partition: int, timeout_s: float) -> None:
        """Wait until metadata has the partition (or any, for -1); raises when it does not come."""
        ...


class Pipeline(Protocol):
    """What a record passes before it is appended, where a program has interceptors, serializers or a partitioner."""

    def send(
        self,
        send_path: SendPath,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Delivery: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class SendPath:
    """The part of `Producer` that is compiled.

    It is inherited, since to delegate would cost an interpreted call a record. What it calls for each record is in
    `RecordAppender`: a class that interpreted ones inherit from calls its own methods by name, which is slow.
    """

    def __init__(self, accumulator: RecordAccumulator, metadata_wait: MetadataWait, pipeline: Pipeline | None) -> None:
        self._accumulator = accumulator
        self._metadata_wait = metadata_wait
        self._pipeline: Pipeline | None = pipeline
        self._appender = RecordAppender(accumulator, metadata_wait)

    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Headers = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Hand a record over; it is sent with others of its partition. The Delivery says where it went.

        `on_delivery(metadata, error)` is called on the engine's thread. Raises at once what is known at once: a record
        too large, a topic that does not appear or memory that does not get free within `max.block.ms`.
        """
        if self._pipeline is not None:
            return self._pipeline.send(self, topic, value, key, partition, timestamp_ms, headers, on_delivery)
        return self._appender.append(
            topic,
            value if isinstance(value, bytes) else as_bytes(value, "value"),
            key if isinstance(key, bytes) else as_bytes(key, "key"),
            -1 if partition is None else checked(partition, "partition"),
            -1 if timestamp_ms is None else checked(timestamp_ms, "timestamp_ms"),
            NO_HEADERS if headers is None else encoded_headers(headers),
            on_delivery,
        )

    def _send_serialized(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        """What `send` does after interceptors and serializers."""
        return self._appender.append(
            topic,
            value,
            key,
            -1 if partition is None else checked(partition, "partition"),
            -1 if timestamp_ms is None else checked(timestamp_ms, "timestamp_ms"),
            NO_HEADERS if headers is None else encoded_headers(headers),
            on_delivery,
        )

    def _append_batch(
        self, topic: str, partition: int, body: bytes, count: int, base_timestamp: int, max_timestamp: int
    ) -> Delivery:
        """Hand over `count` records that are encoded already: v2 records with deltas from 0 and `base_timestamp` on.

        They are sent as one batch of their own, behind what the partition has; the Delivery is the first record's.
        """
        return self._appender.append_batch(topic, partition, body, count, base_timestamp, max_timestamp)


@final
class RecordAppender:
    """Appends records to the accumulator, and waits for it where that is necessary."""

    def __init__(self, accumulator: RecordAccumulator, metadata_wait: MetadataWait) -> None:
        self._accumulator = accumulator
        self._metadata_wait = metadata_wait
        self._largest: i64 = accumulator.limits.largest_record
        # Read without a call a record.
        self._has_system_clock = isinstance(accumulator.clock, SystemClock)

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
        if size > self._largest:
            raise self._accumulator.limits.too_large(size)
        accumulator = self._accumulator
        if timestamp < 0:
            if self._has_system_clock:
                timestamp = i64(int(time() * 1000.0))
            else:
                timestamp = accumulator.clock.wall_ms()
        accumulator.check_accepting()
        delivery: Delivery | None = None
        accumulator.lock.acquire()
        try:
            accumulator.check_accepting()
            topic_queues = accumulator.topics.get(topic)
            if topic_queues is not None and accumulator.pending_sends.count == 0:
                delivery = accumulator.place(topic_queues, partition, timestamp, key, value, headers, size)
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
        accumulator = self._accumulator
        accumulator.check_accepting()
        size: i64 = len(body)
        if size > self._largest:
            raise accumulator.limits.too_large(size)
        deadline = accumulator.clock.monotonic() + accumulator.limits.max_block_s
        granted = False
        batch: ProducerBatch | None = None
        while batch is None:
            topic_queues = accumulator.topics.get(topic)
            if topic_queues is None or partition >= topic_queues.count:
                remaining = max(deadline - accumulator.clock.monotonic(), 0.0)
                try:
                    self._metadata_wait.await_topic(topic, partition, remaining)
                except BaseException:
                    if granted:
                        self._release_memory(size)
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
                    batch = self._encoded_batch(topic_queues.queues[partition], body, count)
                    batch.base_timestamp = base_timestamp
                    batch.max_timestamp = max_timestamp
                    accumulator.place_prepared(topic_queues.queues[partition], batch)
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

    def _encoded_batch(self, queue: PartitionQueue, body: bytes, count: int) -> ProducerBatch:
        """A batch whose records came encoded; its memory is reserved."""
        batch = ProducerBatch(queue.topic.name, queue.partition, queue, self._accumulator.guard, None)
        batch.body = body
        batch.count = count
        batch.reserved = len(body)
        return batch

    def _wait_for_memory(self, waiter: MemoryWaiter, topic: str, timeout: float) -> None:
        """Return with the memory granted, or raise."""
        accumulator = self._accumulator
        accumulator.wake()
        try:
            if waiter.lock is not None and timeout > 0:
                accumulator.guard.wait_for(waiter.lock, timeout)
        except BaseException:
            self._cancel_wait(waiter)
            raise
        if waiter.granted and accumulator.refusal is None:
            return
        self._cancel_wait(waiter)
        accumulator.check_accepting()
        raise accumulator.buffer_full(topic)

    def _cancel_wait(self, waiter: MemoryWaiter) -> None:
        self._accumulator.lock.acquire()
        try:
            self._accumulator.pool.cancel_wait(waiter)
        finally:
            self._accumulator.lock.release()

    def _release_memory(self, size: i64) -> None:
        self._accumulator.lock.acquire()
        try:
            self._accumulator.pool.release(size)
        finally:
            self._accumulator.lock.release()

    def _throttle(self) -> None:
        """The backlog is long: hold this thread until the engine has worked some of it off.

        Both need the interpreter, and the engine would get it from a thread that never waits every 5 ms only.
        """
        accumulator = self._accumulator
        accumulator.is_backlogged = False
        if accumulator.in_flight_requests == 0 or self._metadata_wait.in_event_loop():
            return
        latch = allocate_lock()
        latch.acquire()
        accumulator.throttled.append(latch)
        accumulator.guard.wait_for(latch, _THROTTLE_S)

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
        accumulator = self._accumulator
        if self._metadata_wait.in_event_loop():
            return accumulator.pending_sends.defer(topic, value, key, partition, timestamp, headers, size, on_delivery)
        deadline = accumulator.clock.monotonic() + accumulator.limits.max_block_s
        while True:
            remaining = max(deadline - accumulator.clock.monotonic(), 0.0)
            topic_queues = accumulator.topics.get(topic)
            if topic_queues is None or partition >= topic_queues.count or topic_queues.count == 0:
                self._metadata_wait.await_topic(topic, partition, remaining)
                topic_queues = accumulator.topics.get(topic)
                if topic_queues is None:
                    continue
            delivery = self._place_or_wait(
                topic_queues, value, key, partition, timestamp, headers, size, on_delivery, remaining
            )
            if delivery is not None:
                accumulator.wake_if_needed()
                return delivery

    def _place_or_wait(
        self,
        topic_queues: TopicQueues,
        value: bytes | None,
        key: bytes | None,
        partition: i64,
        timestamp: i64,
        headers: bytes,
        size: i64,
        on_delivery: OnDelivery | None,
        timeout: float,
    ) -> Delivery | None:
        """One attempt, which waits for memory if there is too little; none when the partition is gone."""
        accumulator = self._accumulator
        accumulator.lock.acquire()
        try:
            accumulator.check_accepting()
            delivery = accumulator.place(topic_queues, partition, timestamp, key, value, headers, size)
            if delivery is not None and on_delivery is not None:
                delivery._call_on_delivery(on_delivery)
            if delivery is not None or topic_queues.route(partition, key) is None:
                return delivery
            waiter = accumulator.pool.enqueue(accumulator.needed(size), True)
        finally:
            accumulator.lock.release()
        self._wait_for_memory(waiter, topic_queues.name, timeout)
        accumulator.lock.acquire()
        try:
            # What was granted is used up in any case, so that it cannot get lost.
            delivery = accumulator.place_granted(
                topic_queues, partition, timestamp, key, value, headers, size, waiter.needed
            )
            if delivery is not None and on_delivery is not None:
                delivery._call_on_delivery(on_delivery)
        finally:
            accumulator.lock.release()
        return delivery


def as_bytes(given: object, what: str) -> bytes | None:
    """A value that needs no serializer: bytes, text, or none."""
    if given is None:
        return None
    if isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode()
    if isinstance(given, (bytearray, memoryview)):
        return bytes(given)
    raise SerializationError(
        f"a {what} of type {type(given).__name__} needs a {what}.serializer: without one, give bytes, text or None"
    )


def checked(number: int, what: str) -> int:
    if number < 0:
        raise UserError(f"{what}={number}: give a number from 0 on, or None")
    return number


def encoded_headers(headers: Headers) -> bytes:
    if not headers:
        return NO_HEADERS
    pairs: Iterable[Any] = headers.items() if isinstance(headers, Mapping) else headers
    plain: list[Header] = []
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            # Text of two letters would be a pair to Python.
            raise SerializationError(f"the header {pair!r} is no pair; give headers=[(name, value), ...] or a dict")
        name, value = pair
        if not isinstance(name, str):
            raise SerializationError(f"a header's name is text, not {type(name).__name__}")
        plain.append((name, as_bytes(value, "header value")))
    return encode_headers(tuple(plain))
