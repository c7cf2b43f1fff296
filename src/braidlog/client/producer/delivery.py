"""The promise that `send` returns: where a record went once it is known (hot: compiled by mypyc).

A Delivery is a reference into its batch and nothing more: no lock and no future of its own. Only a caller that waits
for it, or asks for a callback, adds a waiter to the batch.
"""

from __future__ import annotations

import logging
from _thread import LockType, allocate_lock
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple

from mypy_extensions import i32, i64, mypyc_attr

from braidlog.client.errors import ConcurrentUseError, DeliveryTimeoutError
from braidlog.client.producer.accumulator.producer_batch import WHOLE, ProducerBatch, Waiter

log = logging.getLogger("braidlog.client")

Header = tuple[str, bytes | None]

# How long the engine may take to fail a record that ran out of time.
_GRACE_S: Final = 2.0


class ProducerRecord(NamedTuple):
    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp_ms: int | None = None
    headers: tuple[Header, ...] = ()


class RecordMetadata(NamedTuple):
    """Where an acknowledged record is, and its timestamp."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    serialized_key_size: int
    serialized_value_size: int


# Set here, since mypyc puts a text of its own in the place of docstrings in such classes.
setattr(ProducerRecord, "__doc__", "What a program gave to `send`, as interceptors see it.")  # noqa: B010
setattr(RecordMetadata, "__doc__", "Where a record is; offset -1 when the broker did not say (acks=0).")  # noqa: B010

OnDelivery = Callable[[RecordMetadata | None, Exception | None], object]


@mypyc_attr(acyclic=True)
class Delivery:
    """What `send` returns: where the record went, once that is known.

    `result()` waits for it, `await` does so in an event loop, `add_done_callback` registers a callback.
    """

    __slots__ = ("_batch", "_index", "_key_size", "_timestamp", "_value_size")

    def __init__(self, batch: ProducerBatch, index: i64, timestamp: i64, key_size: i32, value_size: i32) -> None:
        self._batch = batch
        self._index: i64 = index
        self._timestamp: i64 = timestamp
        self._key_size: i32 = key_size
        self._value_size: i32 = value_size

    def __repr__(self) -> str:
        state = "pending" if not self.done() else "failed" if self._error() is not None else "done"
        return f"<Delivery to {self._batch.topic}-{self._batch.partition}, {state}>"

    def __reduce__(self) -> str | tuple[Any, ...]:
        raise TypeError("a Delivery belongs to the producer that it is of; copy or pickle what result() returns")

    def _current_batch(self) -> ProducerBatch:
        """The batch that has the record now, `index` being its place there."""
        part = self._batch.final_part(self._index)
        if part is not None:
            self._batch = part.batch
            self._index = part.at
        return self._batch

    def done(self) -> bool:
        """Whether the record was acknowledged, or failed."""
        return self._current_batch().is_done

    def _error(self) -> Exception | None:
        return self._current_batch().error_of(self._index)

    def _metadata(self) -> RecordMetadata:
        batch = self._current_batch()
        offset = batch.base_offset + self._index if batch.base_offset >= 0 else batch.base_offset
        timestamp = batch.append_time if batch.append_time >= 0 else self._timestamp
        # As its constructor does, which is a function in Python of its own.
        return tuple.__new__(
            RecordMetadata, (batch.topic, batch.partition, offset, timestamp, self._key_size, self._value_size)
        )

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait; the record's place, or raises why it was not written. TimeoutError after `timeout` seconds."""
        if not self._current_batch().is_done:
            self._wait(timeout)
        error = self._error()
        if error is not None:
            # The records of a batch share it: each would add its caller's frames to those of the ones before.
            raise error.with_traceback(None)
        return self._metadata()

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait; why the record was not written, or none."""
        if not self._current_batch().is_done:
            self._wait(timeout)
        return self._error()

    def _wait(self, timeout: float | None) -> None:
        batch = self._batch
        if batch.guard.is_engine_thread():
            raise ConcurrentUseError("a delivery callback cannot wait for another delivery; use add_done_callback")
        batch.guard.check()
        clock = batch.guard.clock
        began = clock.monotonic()
        direct = batch.guard.direct
        if direct is not None:
            direct.read_until_over(batch, timeout)
        latch = CompletionLatch(self._index)
        if not batch.watch(latch):
            return
        while True:
            waited = clock.monotonic() - began
            # The engine ends every delivery in time. That it does is not left to it alone: it may hang in a callback.
            expires = self._current_batch().expires
            late_after = expires + _GRACE_S - began
            if timeout is not None and timeout < late_after:
                if batch.guard.wait_for(latch.lock, timeout - waited):
                    return
                raise TimeoutError(
                    f"no answer yet for a record of {batch.topic}-{batch.partition} after {timeout:g} s; "
                    "it may still be written"
                )
            if batch.guard.wait_for(latch.lock, late_after - waited):
                return
            if self._current_batch().expires <= expires:
                raise DeliveryTimeoutError(
                    f"a record for {batch.topic}-{batch.partition} was not acknowledged within delivery.timeout.ms, "
                    "and the producer's thread does not say why; does a delivery callback keep it?"
                )

    def add_done_callback(self, callback: Callable[[Delivery], object]) -> None:
        """Call with this delivery once it is done, on the engine's thread; at once if it is done already."""
        waiter = CallbackWaiter(self, callback)
        if not self._current_batch().is_done:
            self._batch.guard.check()
        if self._batch.watch(waiter):
            self._batch.guard.let_engine_read()
        else:
            waiter.call()

    def _call_on_delivery(self, callback: OnDelivery) -> None:
        """Under the lock, of a record that was appended just now."""
        self._batch.add_callback(self, callback)

    def _fire_callback(self, callback: OnDelivery) -> None:
        """Call the program once the delivery is done; what it raises is logged."""
        try:
            error = self._error()
            if error is not None:
                callback(None, error)
            else:
                callback(self._metadata(), None)
        except BaseException:
            # Also sys.exit(): here it would only keep other callbacks from being called.
            log.exception("a delivery callback failed")

    def outcome(self) -> tuple[RecordMetadata | None, Exception | None]:
        """The metadata or the error of a delivery that is done."""
        error = self._error()
        return (None, error) if error is not None else (self._metadata(), None)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        from braidlog.client.producer.async_delivery import delivery_result

        waiting: Generator[Any, None, RecordMetadata] = delivery_result(self).__await__()
        return waiting


class CallbackWaiter(Waiter):
    """Calls a program's function; what it raises is logged."""

    def __init__(self, delivery: Delivery, on_done: Callable[[Delivery], object]) -> None:
        super().__init__(delivery._index)
        self.delivery = delivery
        self.on_done = on_done

    def settle(self) -> None:
        try:
            self.call()
        except BaseException:
            log.exception("a delivery callback failed")

    def call(self) -> None:
        try:
            self.on_done(self.delivery)
        except Exception:
            log.exception("a delivery callback failed")


class CompletionLatch(Waiter):
    """A thread sleeps on it until `remaining` batches, or one record, are done; `forward` is notified then, too."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.remaining = 1
        self.lock: LockType = allocate_lock()
        self.lock.acquire()
        self.forward: Waiter | None = None

    def settle(self) -> None:
        self.remaining -= 1
        if self.remaining == 0:
            self.lock.release()
            if self.forward is not None:
                self.forward.settle()

    def spread(self, parts: int) -> None:
        self.remaining += parts - 1

    def is_released(self) -> bool:
        return self.remaining == 0


def latch_for(batches: list[ProducerBatch]) -> CompletionLatch | None:
    """Under the lock: released when all of them are done; none when they are."""
    latch = CompletionLatch(WHOLE)
    watched = 0
    for batch in batches:
        latch.remaining += 1
        if batch.watch_locked(latch):
            watched += 1
        else:
            latch.remaining -= 1
    latch.remaining -= 1
    return latch if watched else None
