"""Records of one partition that are sent together, and who waits for them (hot: compiled by mypyc).

A batch is written by programs' threads while it is open, then belongs to the sender:

    open ──closed──▶ waiting ──taken──▶ in flight ──answered──▶ done
                        ▲                   │
                        └────── retry ──────┘

A thread that holds the accumulator's lock may move it. A batch that is split, or that is the placeholder of a pending
send, is replaced: its `parts` say where its records went, and it is never done itself.
"""

from __future__ import annotations

from _thread import LockType, get_ident
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from librt.strings import BytesWriter
from librt.threading import Lock
from mypy_extensions import i64, mypyc_attr

from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import InvalidRecordError, ProtocolError

if TYPE_CHECKING:
    from braidlog.client.producer.accumulator.partition_queue import PartitionQueue
    from braidlog.client.producer.delivery import Delivery, OnDelivery

NO_OFFSET: Final = -1
NO_SEQUENCE: Final = -1
# A monotonic time that never comes.
NEVER: Final = 1e18
# The waiter is for the batch as a whole, not for one of its records.
WHOLE: Final = -1


class DirectReader(Protocol):
    def read_until_over(self, awaited: Any, timeout_s: float | None) -> None:
        """Read in the engine's place until a batch is done, or a latch is released; gives up after a moment."""
        ...

    def let_engine_read(self) -> None:
        """A caller waits that does not read by itself."""
        ...


class Guard:
    """The one lock of a producer's queues, the clock of its deadlines, and the thread that must never wait."""

    __slots__ = ("acquire", "clock", "direct", "engine_thread", "gone", "lock")

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        # How a thread waits for a lock that the engine releases; none: by taking it.
        self.acquire: Callable[[LockType, float], bool] | None = None
        self.lock = Lock()
        self.engine_thread = -1
        # Lets a thread that waits read responses in that thread's place.
        self.direct: DirectReader | None = None
        # Why that thread is gone, where it did not end by itself (a fork): no batch will be done, no lock released.
        self.gone: Exception | None = None

    def is_engine_thread(self) -> bool:
        return get_ident() == self.engine_thread

    def let_engine_read(self) -> None:
        if self.direct is not None:
            self.direct.let_engine_read()

    def check(self) -> None:
        """Before a caller waits."""
        if self.gone is not None:
            raise self.gone.with_traceback(None)

    def wait_for(self, lock: LockType, timeout: float | None) -> bool:
        """Until the engine releases the lock; false when the time is over first."""
        if self.acquire is not None:
            return self.acquire(lock, NEVER if timeout is None else max(timeout, 0.0))
        if timeout is None:
            return lock.acquire()
        return lock.acquire(True, max(timeout, 0.0))


@mypyc_attr(allow_interpreted_subclasses=True)
class Waiter:
    """Is notified once a record, or a whole batch, is done: on the engine's thread, without locks."""

    def __init__(self, index: int) -> None:
        self.index: int = index

    def settle(self) -> None:
        raise NotImplementedError

    def spread(self, parts: int) -> None:
        """The batch waited for was replaced by so many."""


class BatchCallbacks(Waiter):
    """The programs' callbacks of a batch."""

    def __init__(self, batch: ProducerBatch) -> None:
        super().__init__(WHOLE)
        self.batch = batch

    def settle(self) -> None:
        self.batch.fire_callbacks()


class Part:
    """Where the records `first`…`end - 1` of a replaced batch went: to `batch`, from `at` on."""

    __slots__ = ("at", "batch", "end", "first")

    def __init__(self, first: int, end: int, batch: ProducerBatch, at: int) -> None:
        self.first = first
        self.end = end
        self.batch = batch
        self.at = at


class ProducerBatch:
    __slots__ = (
        "append_time",
        "attempts",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "batch_future",
        "body",
        "callback_deliveries",
        "callbacks",
        "closed",
        "codec",
        "count",
        "created",
        "error",
        "expires",
        "guard",
        "head",
        "in_flight",
        "is_done",
        "is_placeholder",
        "last_problem",
        "max_timestamp",
        "number",
        "order",
        "order_within",
        "partition",
        "parts",
        "producer_epoch",
        "producer_id",
        "queue",
        "raw_size",
        "record_errors",
        "reserved",
        "retry_at",
        "room",
        "sequence_reset",
        "serial",
        "split_below",
        "topic",
        "transactional",
        "waiters",
        "writer",
    )  # fmt: skip

    def __init__(
        self, topic: str, partition: int, queue: PartitionQueue | None, guard: Guard, writer: BytesWriter | None
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.queue: PartitionQueue | None = queue
        self.guard = guard
        self.serial: i64 = 0
        # The batches of a partition are sent by this, also those that go again; parts of a split one share the first
        # number, and differ in the record that they start with.
        self.order: i64 = 0
        self.order_within: i64 = 0
        # Filling
        self.writer: BytesWriter | None = writer
        self.count: i64 = 0
        # Bytes the records may take before the batch is full or needs more memory.
        self.room: i64 = 0
        self.reserved: i64 = 0
        self.base_timestamp: i64 = -1
        self.max_timestamp: i64 = -1
        self.closed = False
        # Stands for a record that waits for metadata or memory, until a real batch takes it.
        self.is_placeholder = False
        # Sending; times are the monotonic clock's.
        self.created = 0.0
        self.expires = 0.0
        self.retry_at = 0.0
        self.attempts: i64 = 0
        self.in_flight = False
        # What the last try ended with.
        self.last_problem: Exception | None = None
        self.raw_size: i64 = 0
        # -1 until it is encoded: the body of a batch that was handed over whole is then as it came.
        self.codec: i64 = -1
        self.head: bytes | None = None
        self.body: bytes = b""
        # Split, when a broker finds it too large, into batches below this many bytes.
        self.split_below: i64 = 0
        self.producer_id: i64 = -1
        self.producer_epoch: i64 = -1
        self.base_sequence: i64 = NO_SEQUENCE
        # Counts the partition's batches that got a sequence.
        self.number: i64 = 0
        self.sequence_reset = False
        self.transactional = False
        # Done
        self.is_done = False
        self.base_offset: i64 = NO_OFFSET
        self.append_time: i64 = -1
        self.error: Exception | None = None
        self.record_errors: dict[int, str] | None = None
        self.waiters: list[Waiter] | None = None
        # What event loops wait for (async_delivery.py).
        self.batch_future: Any = None
        self.callback_deliveries: list[Delivery] = []
        self.callbacks: list[OnDelivery] | None = None
        self.parts: list[Part] | None = None

    def __repr__(self) -> str:
        state = "done" if self.is_done else "in flight" if self.in_flight else "waiting" if self.closed else "open"
        where = f"{self.topic}-{self.partition}"
        return f"<ProducerBatch {where}, {self.count} records, sequence {self.base_sequence}, {state}>"

    @property
    def last_sequence(self) -> int:
        return self.base_sequence + self.count - 1

    def comes_before(self, other: ProducerBatch) -> bool:
        return self.order < other.order or (self.order == other.order and self.order_within < other.order_within)

    def set_producer_state(self, producer_id: i64, producer_epoch: i64, base_sequence: i64) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.head = None

    def final_part(self, index: int) -> Part | None:
        """Where a record of a replaced batch is in the end; none when this batch was not replaced."""
        parts = self.parts
        if parts is None:
            return None
        for part in parts:
            if index < part.end:
                there = part.at + index - part.first
                further = part.batch.final_part(there)
                return further if further is not None else Part(there, there + 1, part.batch, there)
        raise IndexError(index)

    def watch(self, waiter: Waiter) -> bool:
        """Whether the waiter will be notified; false: what it waits for is done already. Takes the lock."""
        lock = self.guard.lock
        lock.acquire()
        try:
            return self.watch_locked(waiter)
        finally:
            lock.release()

    def add_callback(self, delivery: Delivery, callback: OnDelivery) -> None:
        """Under the lock: the program wants to be called for one of the records."""
        callbacks = self.callbacks
        if callbacks is None:
            self.callback_deliveries = [delivery]
            self.callbacks = [callback]
        else:
            self.callback_deliveries.append(delivery)
            callbacks.append(callback)

    def fire_callbacks(self) -> None:
        """Without the lock, once it is done."""
        callbacks = self.callbacks
        if callbacks is None:
            return
        callback_deliveries = self.callback_deliveries
        self.callbacks = None
        self.callback_deliveries = []
        for at in range(len(callbacks)):
            callback_deliveries[at]._fire_callback(callbacks[at])

    def watch_locked(self, waiter: Waiter) -> bool:
        if self.parts is not None:
            return self._pass_on(waiter)
        if self.is_done:
            return False
        if self.waiters is None:
            self.waiters = []
        self.waiters.append(waiter)
        return True

    def _pass_on(self, waiter: Waiter) -> bool:
        parts = self.parts
        assert parts is not None
        if waiter.index != WHOLE:
            for part in parts:
                if waiter.index < part.end:
                    waiter.index = part.at + waiter.index - part.first
                    return part.batch.watch_locked(waiter)
            raise IndexError(waiter.index)
        pending = [part for part in parts if not part.batch.all_done()]
        if not pending:
            return False
        waiter.spread(len(pending))
        for part in pending:
            part.batch.watch_locked(waiter)
        return True

    def all_done(self) -> bool:
        """Also of what a replaced batch became."""
        parts = self.parts
        if parts is None:
            return self.is_done
        return all(part.batch.all_done() for part in parts)

    def replace(self, parts: list[Part]) -> None:
        """Under the lock: the records are in other batches from now on, and so are those who wait for them."""
        self.parts = parts
        waiters = self.waiters
        self.waiters = None
        if waiters is not None:
            for waiter in waiters:
                self._pass_on(waiter)
        callbacks = self.callbacks
        if callbacks is not None:
            self.callbacks = None
            for at in range(len(callbacks)):
                delivery = self.callback_deliveries[at]
                delivery._current_batch().add_callback(delivery, callbacks[at])
            self.callback_deliveries = []

    def finish(
        self, base_offset: i64, append_time: i64, error: Exception | None, record_errors: dict[int, str] | None
    ) -> list[Waiter] | None:
        """Under the lock; returns those to notify after it was released."""
        self.is_done = True
        self.in_flight = False
        self.closed = True
        self.base_offset = base_offset
        self.append_time = append_time
        self.error = error
        self.record_errors = record_errors
        self.head = None
        self.body = b""
        self.writer = None
        self.batch_future = None
        waiters = self.waiters
        self.waiters = None
        if self.callbacks is not None:
            # Before those who wait: a flush is over when the callbacks were called.
            waiters = [BatchCallbacks(self)] if waiters is None else [BatchCallbacks(self), *waiters]
        return waiters

    def error_of(self, index: int) -> Exception | None:
        """Why a record failed; of a batch that was refused for some of its records the others have no fault."""
        error = self.error
        if error is None or self.record_errors is None or not isinstance(error, ProtocolError):
            return error
        reason = self.record_errors.get(index)
        if reason is not None:
            return InvalidRecordError(reason) if reason else error
        return InvalidRecordError(
            f"other records of the same batch for {self.topic}-{self.partition} were refused ({error}), "
            "and this one with them; send it again"
        )


def notify_waiters(waiters: list[Waiter] | None) -> None:
    """On the engine's thread and without the lock."""
    if waiters is not None:
        for waiter in waiters:
            waiter.settle()
