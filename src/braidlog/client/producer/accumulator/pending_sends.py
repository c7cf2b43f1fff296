"""Records whose send is deferred, because their thread runs an event loop and must not wait (hot: compiled by mypyc).

`send` returns their delivery at once, which refers to a placeholder instead of a batch. The engine appends them in the
order they came, as the topic's metadata and memory come; each waits for `max.block.ms` at most.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from mypy_extensions import i64

from braidlog.client.producer.accumulator.buffer_pool import MemoryWaiter
from braidlog.client.producer.accumulator.producer_batch import NEVER, Part, ProducerBatch, Waiter
from braidlog.client.producer.delivery import Delivery, OnDelivery

if TYPE_CHECKING:
    from braidlog.client.producer.accumulator.record_accumulator import RecordAccumulator


class PendingSend:
    __slots__ = ("delivery", "expires", "headers", "key", "memory", "partition", "size", "value")

    def __init__(
        self,
        delivery: Delivery,
        partition: i64,
        key: bytes | None,
        value: bytes | None,
        headers: bytes,
        size: i64,
        expires: float,
    ) -> None:
        self.delivery = delivery
        self.partition: i64 = partition
        self.key: bytes | None = key
        self.value: bytes | None = value
        self.headers = headers
        self.size: i64 = size
        self.expires = expires
        self.memory: MemoryWaiter | None = None


class Admitted:
    """What is left to do after `admit`."""

    def __init__(self) -> None:
        # Topics that metadata has to be asked for.
        self.unknown_topics: list[str] = []
        self.to_notify: list[Waiter] = []
        # When to look again, if nothing happens before.
        self.look_at = NEVER


class PendingSends:
    def __init__(self, accumulator: RecordAccumulator) -> None:
        self._accumulator = accumulator
        self._by_topic: dict[str, deque[PendingSend]] = {}
        # Records that wait. Guarded by the accumulator's lock, as everything here.
        self.count: i64 = 0

    def defer(
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
        """From a program's thread: take a record for later, and wake the engine."""
        accumulator = self._accumulator
        placeholder = ProducerBatch(topic, max(partition, -1), None, accumulator.guard, None)
        placeholder.count = 1
        placeholder.is_placeholder = True
        delivery = Delivery(
            placeholder, 0, timestamp, -1 if key is None else len(key), -1 if value is None else len(value)
        )
        expires = accumulator.clock.monotonic() + accumulator.limits.max_block_s
        # At the latest: once the record is appended, its batch says.
        placeholder.expires = expires + accumulator.limits.delivery_timeout_s
        pending = PendingSend(delivery, partition, key, value, headers, size, expires)
        accumulator.lock.acquire()
        try:
            accumulator.check_accepting()
            accumulator.register(placeholder)
            queue = self._by_topic.get(topic)
            if queue is None:
                queue = deque()
                self._by_topic[topic] = queue
            queue.append(pending)
            self.count += 1
            if on_delivery is not None:
                delivery._call_on_delivery(on_delivery)
        finally:
            accumulator.lock.release()
        accumulator.wake()
        return delivery

    def admit(self, now: float) -> Admitted:
        """On the engine's thread: append what can be, each topic's records in order, until one has to wait on."""
        result = Admitted()
        lock = self._accumulator.lock
        lock.acquire()
        try:
            for topic in list(self._by_topic):
                queue = self._by_topic[topic]
                while len(queue) > 0 and self._admit(topic, queue[0], now, result):
                    queue.popleft()
                    self.count -= 1
                if len(queue) == 0:
                    del self._by_topic[topic]
                elif len(result.unknown_topics) == 0 or result.unknown_topics[-1] != topic:
                    # Who looks for a topic wakes the sender; by time it would look at it over and over.
                    result.look_at = min(result.look_at, queue[0].expires)
        finally:
            lock.release()
        return result

    def _admit(self, topic: str, pending: PendingSend, now: float, result: Admitted) -> bool:
        """Whether it waits no more."""
        accumulator = self._accumulator
        placeholder = pending.delivery._batch
        if placeholder.is_done:
            self._cancel_wait(pending)
            return True
        queues = accumulator.topics.get(topic)
        if queues is None or queues.route(pending.partition, pending.key) is None:
            # Metadata has a deadline of its own, and its error says why.
            result.unknown_topics.append(topic)
            return False
        if accumulator.partitioner is not None and pending.partition < 0:
            # Now that the topic is known, the program's own partitioner can be asked.
            pending.partition = accumulator.partitioner.partition(topic, pending.key, pending.value, queues.view)
        timestamp = pending.delivery._timestamp
        memory = pending.memory
        placed: Delivery | None = None
        if memory is not None and memory.granted:
            pending.memory = None
            placed = accumulator.place_granted(
                queues,
                pending.partition,
                timestamp,
                pending.key,
                pending.value,
                pending.headers,
                pending.size,
                memory.needed,
            )
        elif memory is None:
            placed = accumulator.place(
                queues, pending.partition, timestamp, pending.key, pending.value, pending.headers, pending.size
            )
        if placed is not None:
            accumulator.incomplete.pop(placeholder.serial, None)
            placeholder.replace([Part(0, 1, placed._batch, placed._index)])
            return True
        if now >= pending.expires:
            self._fail(pending, accumulator.buffer_full(topic), result.to_notify)
            return True
        if pending.memory is None:
            pending.memory = accumulator.pool.enqueue(accumulator.needed(pending.size), False)
        return False

    def first_partition(self, topic: str) -> int:
        """That which the first of a topic's records names, or -1."""
        lock = self._accumulator.lock
        lock.acquire()
        try:
            queue = self._by_topic.get(topic)
            return -1 if queue is None or len(queue) == 0 else queue[0].partition
        finally:
            lock.release()

    def fail(self, topic: str, error: Exception, partition: int = -1) -> list[Waiter]:
        """Fail all that wait for a topic, or for one partition; returns those to notify once the lock is released."""
        to_notify: list[Waiter] = []
        lock = self._accumulator.lock
        lock.acquire()
        try:
            if partition < 0:
                self._fail_topic(topic, error, to_notify)
            else:
                self._fail_partition(topic, partition, error, to_notify)
        finally:
            lock.release()
        return to_notify

    def fail_all(self, error: Exception) -> list[Waiter]:
        to_notify: list[Waiter] = []
        lock = self._accumulator.lock
        lock.acquire()
        try:
            for topic in list(self._by_topic):
                self._fail_topic(topic, error, to_notify)
        finally:
            lock.release()
        return to_notify

    def _fail_topic(self, topic: str, error: Exception, to_notify: list[Waiter]) -> None:
        queue = self._by_topic.pop(topic, None)
        if queue is not None:
            self.count -= len(queue)
            for pending in queue:
                self._fail(pending, error, to_notify)

    def _fail_partition(self, topic: str, partition: int, error: Exception, to_notify: list[Waiter]) -> None:
        queue = self._by_topic.get(topic)
        if queue is not None:
            for pending in [each for each in queue if each.partition == partition]:
                queue.remove(pending)
                self.count -= 1
                self._fail(pending, error, to_notify)
            if len(queue) == 0:
                del self._by_topic[topic]

    def _fail(self, pending: PendingSend, error: Exception, to_notify: list[Waiter]) -> None:
        self._cancel_wait(pending)
        waiters = self._accumulator.finish(pending.delivery._batch, -1, -1, error, None)
        if waiters is not None:
            to_notify.extend(waiters)

    def _cancel_wait(self, pending: PendingSend) -> None:
        if pending.memory is not None:
            self._accumulator.pool.cancel_wait(pending.memory)
            pending.memory = None
