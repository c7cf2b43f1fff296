"""Lets in the records that took a seat, as metadata and memory come (hot: compiled by mypyc)."""

from __future__ import annotations

from collections import deque

from braidlog.client.errors import BufferFullError
from braidlog.client.producer.accumulator import Accumulator
from braidlog.client.producer.batch import Part, Waiter
from braidlog.client.producer.draining import NEVER
from braidlog.client.producer.seat import Seat


class Admitted:
    def __init__(self) -> None:
        # Topics that metadata has to be asked for.
        self.unknown: list[str] = []
        self.to_notify: list[Waiter] = []
        self.look_at = NEVER


def admit_seats(self: Accumulator, now: float) -> Admitted:
    """On the engine's thread; each topic's records in order, until one has to wait on."""
    result = Admitted()
    self.lock.acquire()
    try:
        for topic in list(self.seats):
            row = self.seats[topic]
            while len(row) > 0 and _let_in(self, topic, row[0], now, result):
                row.popleft()
            if len(row) == 0:
                del self.seats[topic]
            else:
                result.look_at = min(result.look_at, row[0].expires)
    finally:
        self.lock.release()
    return result


def _let_in(self: Accumulator, topic: str, seat: Seat, now: float, result: Admitted) -> bool:
    """Whether the seat is free again."""
    known = self.topics.get(topic)
    stand_in = seat.delivery._batch
    if stand_in.is_done:
        _leave(self, seat)
        return True
    if known is None or known.route(seat.partition, seat.key) is None:
        # Metadata has a deadline of its own, so that the reason can be told.
        result.unknown.append(topic)
        return False
    if self.partitioner is not None and seat.partition < 0:
        # Now that the topic is known, the program's own partitioner can be asked.
        seat.partition = self.partitioner.partition(topic, seat.key, seat.value, known.view)
    timestamp = seat.delivery._timestamp
    memory = seat.memory
    placed = None
    if memory is not None and memory.granted:
        seat.memory = None
        placed = self.place_granted(
            known, seat.partition, timestamp, seat.key, seat.value, seat.headers, seat.size, memory.needed
        )
    elif memory is None:
        placed = self.place(known, seat.partition, timestamp, seat.key, seat.value, seat.headers, seat.size)
    if placed is not None:
        self.incomplete.pop(stand_in.serial, None)
        stand_in.replace([Part(0, 1, placed._batch, placed._index)])
        return True
    if now >= seat.expires:
        _leave(self, seat)
        error = BufferFullError(
            f"no memory for a record of {topic} within max.block.ms ({self.limits.max_block_s:g} s): buffer.memory "
            f"({self.limits.memory} bytes) is full of records that are not acknowledged yet; await deliveries as "
            "you go, or raise buffer.memory"
        )
        _fail(self, seat, error, result.to_notify)
        return True
    if seat.memory is None:
        seat.memory = self.pool.enqueue(self.needed(seat.size), False)
    return False


def _leave(self: Accumulator, seat: Seat) -> None:
    if seat.memory is not None:
        self.pool.give_up(seat.memory)
        seat.memory = None


def _fail(self: Accumulator, seat: Seat, error: Exception, to_notify: list[Waiter]) -> None:
    waiters = self.finish(seat.delivery._batch, -1, -1, error, None)
    if waiters is not None:
        to_notify.extend(waiters)


def fail_seats(self: Accumulator, topic: str, error: Exception) -> list[Waiter]:
    """None of a topic's waiting records can be let in: metadata says why."""
    to_notify: list[Waiter] = []
    self.lock.acquire()
    try:
        row: deque[Seat] = self.seats.pop(topic, deque())
        for seat in row:
            _leave(self, seat)
            _fail(self, seat, error, to_notify)
    finally:
        self.lock.release()
    return to_notify
