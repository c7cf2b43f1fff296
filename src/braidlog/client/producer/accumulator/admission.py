"""Appends records whose send was deferred, as metadata and memory come (hot: compiled by mypyc)."""

from __future__ import annotations

from collections import deque

from braidlog.client.errors import BufferFullError
from braidlog.client.producer.accumulator.pending_send import PendingSend
from braidlog.client.producer.accumulator.producer_batch import NEVER, Part, Waiter
from braidlog.client.producer.accumulator.record_accumulator import RecordAccumulator


class Admitted:
    def __init__(self) -> None:
        # Topics that metadata has to be asked for.
        self.unknown: list[str] = []
        self.to_notify: list[Waiter] = []
        self.look_at = NEVER


def admit_pending_sends(self: RecordAccumulator, now: float) -> Admitted:
    """On the engine's thread; each topic's records in order, until one has to wait on."""
    result = Admitted()
    self.lock.acquire()
    try:
        for topic in list(self.pending_sends):
            row = self.pending_sends[topic]
            while len(row) > 0 and _admit(self, topic, row[0], now, result):
                row.popleft()
            if len(row) == 0:
                del self.pending_sends[topic]
            else:
                result.look_at = min(result.look_at, row[0].expires)
    finally:
        self.lock.release()
    return result


def _admit(self: RecordAccumulator, topic: str, pending: PendingSend, now: float, result: Admitted) -> bool:
    """Whether it waits no more."""
    known = self.topics.get(topic)
    placeholder = pending.delivery._batch
    if placeholder.is_done:
        _leave(self, pending)
        return True
    if known is None or known.route(pending.partition, pending.key) is None:
        # Metadata has a deadline of its own, so that the reason can be told.
        result.unknown.append(topic)
        return False
    if self.partitioner is not None and pending.partition < 0:
        # Now that the topic is known, the program's own partitioner can be asked.
        pending.partition = self.partitioner.partition(topic, pending.key, pending.value, known.view)
    timestamp = pending.delivery._timestamp
    memory = pending.memory
    placed = None
    if memory is not None and memory.granted:
        pending.memory = None
        placed = self.place_granted(
            known,
            pending.partition,
            timestamp,
            pending.key,
            pending.value,
            pending.headers,
            pending.size,
            memory.needed,
        )
    elif memory is None:
        placed = self.place(
            known, pending.partition, timestamp, pending.key, pending.value, pending.headers, pending.size
        )
    if placed is not None:
        self.incomplete.pop(placeholder.serial, None)
        placeholder.replace([Part(0, 1, placed._batch, placed._index)])
        return True
    if now >= pending.expires:
        _leave(self, pending)
        error = BufferFullError(
            f"no memory for a record of {topic} within max.block.ms ({self.limits.max_block_s:g} s): buffer.memory "
            f"({self.limits.memory} bytes) is full of records that are not acknowledged yet; await deliveries as "
            "you go, or raise buffer.memory"
        )
        _fail(self, pending, error, result.to_notify)
        return True
    if pending.memory is None:
        pending.memory = self.pool.enqueue(self.needed(pending.size), False)
    return False


def _leave(self: RecordAccumulator, pending: PendingSend) -> None:
    if pending.memory is not None:
        self.pool.cancel_wait(pending.memory)
        pending.memory = None


def _fail(self: RecordAccumulator, pending: PendingSend, error: Exception, to_notify: list[Waiter]) -> None:
    waiters = self.finish(pending.delivery._batch, -1, -1, error, None)
    if waiters is not None:
        to_notify.extend(waiters)


def fail_pending_sends(self: RecordAccumulator, topic: str, error: Exception) -> list[Waiter]:
    """None of a topic's waiting records can be let in: metadata says why."""
    to_notify: list[Waiter] = []
    self.lock.acquire()
    try:
        row: deque[PendingSend] = self.pending_sends.pop(topic, deque())
        for pending in row:
            _leave(self, pending)
            _fail(self, pending, error, to_notify)
    finally:
        self.lock.release()
    return to_notify
