"""Where programs' records come in: one call a record, in the caller's thread (hot: compiled by mypyc).

The usual record (bytes or text, a topic that is known, memory to spare) is encoded into its partition's open batch and
that is all. What has to wait, waits here for `max.block.ms` at most; in a thread that runs an event loop it takes a
seat instead, and the engine lets it in later, in order.
"""

from __future__ import annotations

from _thread import allocate_lock
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Final, Protocol

from librt.time import time
from mypy_extensions import i64, mypyc_attr

from braidlog.client.errors import BufferFullError, ConcurrentUseError, RecordTooLargeError, SerializationError
from braidlog.client.producer.accumulator import RECORD_OVERHEAD, Accumulator, Seat, too_large_for
from braidlog.client.producer.batch import Batch
from braidlog.client.producer.buffer_pool import MemoryWaiter
from braidlog.client.producer.delivery import Delivery, Header, OnDelivery
from braidlog.client.producer.partition_queue import PartitionQueue, TopicQueues
from braidlog.core.errors import UserError
from braidlog.wire.records.batch import HEADER_SIZE
from braidlog.wire.records.encoding import NO_HEADERS, encode_headers

# The longest that a thread rests for the engine's sake, when it is far ahead of it.
_REST_S: Final = 0.005

Headers = Iterable[tuple[str, bytes | str | None]] | Mapping[str, bytes | str | None] | None


class Surroundings(Protocol):
    """What the intake needs of the world when a record has to wait."""

    def runs_loop(self) -> bool:
        """Whether this thread runs an event loop, which must not be kept."""
        ...

    def await_topic(self, topic: str, partition: int, timeout_s: float) -> None:
        """Wait until metadata has the partition (or any, for -1); raises when it does not come."""
        ...


class Dressing(Protocol):
    """Interceptors, serializers and a partitioner of the program's own, where there are any."""

    def send(
        self,
        intake: Intake,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Delivery: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class Intake:
    def __init__(self, accumulator: Accumulator, surroundings: Surroundings, dressing: Dressing | None) -> None:
        self._accumulator = accumulator
        self._surroundings = surroundings
        self._dressing: Dressing | None = dressing
        self._doorway = Doorway(accumulator, surroundings)

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

        `on_delivery(metadata, error)` is called on the engine's thread. Raises at once what can be told at once: a
        record too large, a topic that does not appear or memory that does not get free within `max.block.ms`.
        """
        if self._dressing is not None:
            return self._dressing.send(self, topic, value, key, partition, timestamp_ms, headers, on_delivery)
        return self._doorway.admit(
            topic,
            value if isinstance(value, bytes) else as_bytes(value, "value"),
            key if isinstance(key, bytes) else as_bytes(key, "key"),
            -1 if partition is None else checked(partition, "partition"),
            -1 if timestamp_ms is None else checked(timestamp_ms, "timestamp_ms"),
            NO_HEADERS if headers is None else encoded_headers(headers),
            on_delivery,
        )

    def send_serialized(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None,
        timestamp_ms: int | None,
        headers: Headers,
        on_delivery: OnDelivery | None,
    ) -> Delivery:
        """What `send` does after interceptors and serializers had their turn."""
        return self._doorway.admit(
            topic,
            value,
            key,
            -1 if partition is None else checked(partition, "partition"),
            -1 if timestamp_ms is None else checked(timestamp_ms, "timestamp_ms"),
            NO_HEADERS if headers is None else encoded_headers(headers),
            on_delivery,
        )


    def append_batch(
        self, topic: str, partition: int, body: bytes, count: int, base_timestamp: int, max_timestamp: int
    ) -> Delivery:
        """Hand over `count` records that are encoded already: v2 records with deltas from 0 and `base_timestamp` on.

        They are sent as one batch of their own, behind what the partition has; the Delivery is the first record's.
        """
        return self._doorway.admit_batch(topic, partition, body, count, base_timestamp, max_timestamp)


class Doorway:
    def __init__(self, accumulator: Accumulator, surroundings: Surroundings) -> None:
        self.accumulator = accumulator
        self.surroundings = surroundings
        limits = accumulator.limits
        self.largest: i64 = min(limits.max_request - HEADER_SIZE, limits.memory)

    def admit(
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
            raise RecordTooLargeError(too_large_for(self.accumulator.limits, size) or "")
        if timestamp < 0:
            timestamp = i64(int(time() * 1000.0))
        accumulator = self.accumulator
        delivery: Delivery | None = None
        accumulator.lock.acquire()
        try:
            if accumulator.refusal is not None:
                raise accumulator.refusal
            known = accumulator.topics.get(topic)
            if known is not None and len(accumulator.seats) == 0:
                delivery = accumulator.place(known, partition, timestamp, key, value, headers, size)
                if delivery is not None and on_delivery is not None:
                    delivery.call_on_delivery(on_delivery)
        finally:
            accumulator.lock.release()
        if delivery is None:
            return self._admit_later(topic, value, key, partition, timestamp, headers, size, on_delivery)
        accumulator.call_if_needed()
        if accumulator.is_behind:
            self._rest()
        return delivery

    def admit_batch(
        self, topic: str, partition: int, body: bytes, count: int, base_timestamp: int, max_timestamp: int
    ) -> Delivery:
        accumulator = self.accumulator
        size: i64 = len(body)
        if size > self.largest:
            raise RecordTooLargeError(too_large_for(accumulator.limits, size) or "")
        deadline = accumulator.clock.monotonic() + accumulator.limits.max_block_s
        granted = False
        batch: Batch | None = None
        while batch is None:
            known = accumulator.topics.get(topic)
            if known is None or partition >= known.count:
                self._refuse_to_keep_a_loop()
                self.surroundings.await_topic(topic, partition, max(deadline - accumulator.clock.monotonic(), 0.0))
                continue
            waiter: MemoryWaiter | None = None
            accumulator.lock.acquire()
            try:
                if accumulator.refusal is not None:
                    raise accumulator.refusal
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
                granted = self._wait_for_memory(waiter, topic, deadline)
        accumulator.call_if_needed()
        if accumulator.is_behind:
            self._rest()
        return Delivery(batch, 0, base_timestamp, -1, -1)

    def _wait_for_memory(self, waiter: MemoryWaiter, topic: str, deadline: float) -> bool:
        accumulator = self.accumulator
        accumulator.call()
        try:
            self._refuse_to_keep_a_loop()
            if waiter.wait(max(deadline - accumulator.clock.monotonic(), 0.0)):
                return True
        except BaseException:
            self._leave_line(waiter)
            raise
        self._leave_line(waiter)
        if accumulator.refusal is not None:
            raise accumulator.refusal
        raise BufferFullError(self._full(topic))

    def _leave_line(self, waiter: MemoryWaiter) -> None:
        self.accumulator.lock.acquire()
        try:
            self.accumulator.pool.give_up(waiter)
        finally:
            self.accumulator.lock.release()

    def _refuse_to_keep_a_loop(self) -> None:
        if self.surroundings.runs_loop():
            raise ConcurrentUseError(
                "batches have to wait for metadata or memory, which would keep the event loop of this thread; "
                "hand them over in another thread (asyncio.to_thread)"
            )

    def _rest(self) -> None:
        """The backlog is long: hold this thread until the engine's next turn is over.

        Both need the interpreter, and a thread that never waits would let the engine have it every 5 ms only.
        """
        accumulator = self.accumulator
        accumulator.is_behind = False
        if self.surroundings.runs_loop():
            return
        bell = allocate_lock()
        bell.acquire()
        accumulator.resting.append(bell)
        accumulator.call()
        bell.acquire(True, _REST_S)

    def _admit_later(
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
        if self.surroundings.runs_loop():
            return self._take_seat(topic, value, key, partition, timestamp, headers, size, on_delivery)
        accumulator = self.accumulator
        deadline = accumulator.clock.monotonic() + accumulator.limits.max_block_s
        while True:
            remaining = max(deadline - accumulator.clock.monotonic(), 0.0)
            known = accumulator.topics.get(topic)
            if known is None or partition >= known.count or known.count == 0:
                self.surroundings.await_topic(topic, partition, remaining)
                known = accumulator.topics.get(topic)
                if known is None:
                    continue
            delivery = self._place_or_wait(known, value, key, partition, timestamp, headers, size, remaining)
            if delivery is not None:
                if on_delivery is not None:
                    callback = on_delivery
                    self._attach(delivery, callback)
                accumulator.call_if_needed()
                return delivery

    def _attach(self, delivery: Delivery, on_delivery: OnDelivery) -> None:
        """A callback for what may have been sent meanwhile."""
        waiter = delivery.callback_waiter(on_delivery)
        if not delivery.batch.watch(waiter):
            waiter.settle()

    def _place_or_wait(
        self,
        known: TopicQueues,
        value: bytes | None,
        key: bytes | None,
        partition: i64,
        timestamp: i64,
        headers: bytes,
        size: i64,
        timeout: float,
    ) -> Delivery | None:
        """One try, waiting for memory if it takes that; none when the partition is gone."""
        accumulator = self.accumulator
        accumulator.lock.acquire()
        try:
            if accumulator.refusal is not None:
                raise accumulator.refusal
            delivery = accumulator.place(known, partition, timestamp, key, value, headers, size)
            if delivery is not None or known.route(partition, key) is None:
                return delivery
            waiter = accumulator.pool.enqueue(accumulator.needed(size), True)
        finally:
            accumulator.lock.release()
        accumulator.call()
        try:
            waiter.wait(timeout)
        finally:
            # Also when the thread was interrupted: a grant must not be lost.
            accumulator.lock.acquire()
            try:
                delivery = None
                if waiter.granted and accumulator.refusal is None:
                    delivery = accumulator.place_granted(
                        known, partition, timestamp, key, value, headers, size, waiter.needed
                    )
                else:
                    accumulator.pool.give_up(waiter)
                    if accumulator.refusal is not None:
                        raise accumulator.refusal
            finally:
                accumulator.lock.release()
        if delivery is None and not waiter.granted:
            raise BufferFullError(self._full(known.name))
        return delivery

    def _full(self, topic: str) -> str:
        limits = self.accumulator.limits
        return (
            f"no memory for a record of {topic} within max.block.ms ({limits.max_block_s:g} s): buffer.memory "
            f"({limits.memory} bytes) is full of records that are not acknowledged yet; "
            "are the brokers reachable? Else send more slowly, or raise buffer.memory"
        )

    # Threads that run an event loop

    def _take_seat(
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
        accumulator = self.accumulator
        stand_in = Batch(topic, max(partition, -1), None, accumulator.guard, None)
        stand_in.count = 1
        stand_in.is_empty_seat = True
        delivery = Delivery(
            stand_in, 0, timestamp, -1 if key is None else len(key), -1 if value is None else len(value)
        )
        expires = accumulator.clock.monotonic() + accumulator.limits.max_block_s
        seat = Seat(delivery, partition, key, value, headers, size, expires)
        accumulator.lock.acquire()
        try:
            if accumulator.refusal is not None:
                raise accumulator.refusal
            accumulator.register(stand_in)
            row = accumulator.seats.get(topic)
            if row is None:
                row = deque()
                accumulator.seats[topic] = row
            row.append(seat)
            if on_delivery is not None:
                delivery.call_on_delivery(on_delivery)
        finally:
            accumulator.lock.release()
        accumulator.call()
        return delivery


def prepared_batch(queue: PartitionQueue, accumulator: Accumulator, body: bytes, count: int) -> Batch:
    """A batch whose records came encoded; its memory is reserved."""
    batch = Batch(queue.topic.name, queue.partition, queue, accumulator.guard, None)
    batch.body = body
    batch.count = count
    batch.reserved = len(body)
    return batch


def as_bytes(given: object, what: str) -> bytes | None:
    """What needs no serializer: bytes, text, nothing."""
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
    pairs = headers.items() if isinstance(headers, Mapping) else headers
    plain: list[Header] = []
    for name, value in pairs:
        if not isinstance(name, str):
            raise SerializationError(f"a header's name is text, not {type(name).__name__}")
        plain.append((name, as_bytes(value, "header value")))
    return encode_headers(tuple(plain))
