"""What was fetched and not yet returned, on the side of the program's thread (hot: compiled by mypyc).

The engine appends to `incoming`; everything else belongs to the thread that polls. Records are made a chunk at a time,
each of one partition: a poll takes the chunk as it is, an iteration walks through it, and `update_position` notes how
far that came before the positions are read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Final

from mypy_extensions import i64

from braidlog.client.consumer.fetch.completed_fetch import CompletedFetch
from braidlog.client.consumer.partition_state import PartitionState
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.errors import PoisonRecordError

Deserialize = Callable[[str, bytes], Any]

_NO_RECORDS: Final[list[ConsumerRecord]] = []


class FetchBuffer:
    def __init__(
        self,
        lock: AbstractContextManager[Any],
        on_drained: Callable[[], None],
        key_of: Deserialize | None = None,
        value_of: Deserialize | None = None,
        on_consume: Callable[[list[ConsumerRecord]], list[ConsumerRecord]] | None = None,
    ) -> None:
        self.incoming: deque[CompletedFetch] = deque()
        # Bytes that arrived (the engine counts) and that are used up (this side counts).
        self.arrived: i64 = 0
        self.drained: i64 = 0
        self.records_taken: i64 = 0
        # The subscription's: positions are shared with the engine.
        self._lock = lock
        self._on_drained = on_drained
        self._key_of = key_of
        self._value_of = value_of
        # What interceptors make of a chunk, once: however the program then takes its records.
        self._on_consume: Callable[[list[ConsumerRecord]], list[ConsumerRecord]] | None = on_consume
        self._current: CompletedFetch | None = None
        # Of paused partitions, in the order they came.
        self._paused: list[CompletedFetch] = []
        # The chunk, and how many of it were returned.
        self.chunk: list[ConsumerRecord] = _NO_RECORDS
        self.at: i64 = 0
        self.count: i64 = 0
        # How many of those are in `records_taken`.
        self._noted: i64 = 0
        # The chunk's fetch. Whether its rest still counts has to be looked at after anything may have changed.
        self.source: CompletedFetch | None = None
        self.is_doubtful: bool = False

    # Positions

    def update_position(self) -> None:
        """Write down how far the program is in the chunk."""
        source = self.source
        if source is None:
            return
        self.records_taken += self.at - self._noted
        self._noted = self.at
        state = source.state
        with self._lock:
            if state.version == source.version and state.is_current:
                at = self.at
                if at < self.count:
                    state.position = self.chunk[at].offset
                    if at > 0:
                        state.position_epoch = i64(self.chunk[at - 1].leader_epoch)
                else:
                    self._finish(source, state)
        if self.at >= self.count:
            self._drop_chunk()
        else:
            self.is_doubtful = True

    def _finish(self, source: CompletedFetch, state: PartitionState) -> None:
        state.position = source.position
        if source.position_epoch >= 0:
            state.position_epoch = source.position_epoch

    def _drop_chunk(self) -> None:
        self.chunk = _NO_RECORDS
        self.at = 0
        self._noted = 0
        self.count = 0
        self.source = None
        self.is_doubtful = False

    def discard(self) -> None:
        """Nothing of what was fetched is to be returned any more."""
        self.incoming.clear()
        self._paused = []
        self._current = None
        self._drop_chunk()

    # Records

    def pop(self) -> ConsumerRecord | None:
        """The next record of the chunk, if nothing has happened since that has to be looked at first."""
        at = self.at
        if at >= self.count or self.is_doubtful:
            return None
        self.at = at + 1
        return self.chunk[at]

    def take(self, most: int) -> list[ConsumerRecord]:
        """Up to so many records, in the order of their partition, and the positions moved past them."""
        records: list[ConsumerRecord] = _NO_RECORDS
        wanted: i64 = most
        while wanted > 0:
            try:
                if not self.refill(wanted):
                    break
            except PoisonRecordError:
                # What came before it is returned first; the next poll raises.
                if records:
                    break
                raise
            part = self.chunk
            at = self.at
            count: i64 = self.count - at
            if count > wanted:
                part = part[at : at + wanted]
                self.at = at + wanted
                count = wanted
            else:
                if at > 0:
                    part = part[at:]
                self.at = self.count
            if records:
                records.extend(part)
            else:
                records = part
            wanted -= count
            self.update_position()
        return records if records is not _NO_RECORDS else []

    def refill(self, most: i64) -> bool:
        """See that the chunk has records to return; False when nothing is there."""
        if self.at < self.count:
            if not self.is_doubtful or self._is_still_valid():
                self.is_doubtful = False
                return True
        else:
            self.update_position()
        while True:
            source = self._next_fetch()
            if source is None:
                return False
            records: list[ConsumerRecord] = []
            self._current = source
            source.read(records, most)
            if records and (self._key_of is not None or self._value_of is not None):
                self._deserialize(source, records)
            if records and self._on_consume is not None:
                records = self._on_consume(records)
            if source.is_used_up:
                self._current = None
                self._account(source)
            self.source = source
            if records:
                self.chunk = records
                self.at = 0
                self._noted = 0
                self.count = len(records)
                self.is_doubtful = False
                return True
            # Nothing that may be seen, but the position moved past it.
            self.update_position()

    def _is_still_valid(self) -> bool:
        """Whether the rest of the chunk may still be returned; else it is put aside or dropped."""
        source = self.source
        if source is None:
            return False
        state = source.state
        if not state.is_current or state.version != source.version:
            self._forget(source)
            self._drop_chunk()
            return False
        if not state.is_readable():
            self._put_back(source)
            self._current = None
            # It was being read: what waits of its partition comes after it.
            self._paused.insert(0, source)
            return False
        return True

    def _put_back(self, source: CompletedFetch) -> None:
        """The rest of the chunk is to be read again."""
        if source.is_used_up:
            # It counts as waiting again.
            source.state.drained -= 1
            self.drained -= source.size
        source.rewind(int(self.chunk[self.at].offset))
        self._current = source
        self._drop_chunk()

    def _next_fetch(self) -> CompletedFetch | None:
        """One that may be read now; others are parked or dropped."""
        current = self._current
        if current is not None:
            if self._is_usable(current):
                return current
            self._current = None
            if self._paused and self._paused[-1] is current:
                self._paused.insert(0, self._paused.pop())
        if self._paused:
            parked, self._paused = self._paused, []
            for at, each in enumerate(parked):
                if self._is_usable(each):
                    self._paused += parked[at + 1 :]
                    return each
        while self.incoming:
            arrived = self.incoming.popleft()
            if self._is_usable(arrived):
                return arrived
        return None

    def _is_usable(self, each: CompletedFetch) -> bool:
        state = each.state
        if not state.is_current or state.version != each.version:
            self._forget(each)
            return False
        if not state.is_readable():
            self._paused.append(each)
            return False
        return True

    def _forget(self, each: CompletedFetch) -> None:
        if not each.is_used_up:
            each.is_used_up = True
            self._account(each)
        if self._current is each:
            self._current = None

    def _account(self, each: CompletedFetch) -> None:
        each.state.drained += 1
        self.drained += each.size
        self._on_drained()

    # Whole fetches, for callers that read batches instead of records

    def take_fetch(self) -> CompletedFetch | None:
        """A fetch to read from its `position` on; it stays where it is until `advance_fetch`."""
        if self.at < self.count and self.source is not None:
            self.update_position()
            self._put_back(self.source)
        else:
            self.update_position()
        each = self._next_fetch()
        self._current = each
        return each

    def advance_fetch(
        self, source: CompletedFetch, position: int, leader_epoch: int, is_done: bool, count: int = 0
    ) -> None:
        """So far was the fetch read; what is left of it is for the next poll."""
        state = source.state
        with self._lock:
            counts = state.version == source.version and state.is_current
            if counts:
                state.position = position
                if leader_epoch >= 0:
                    state.position_epoch = leader_epoch
        self.records_taken += count
        if is_done or not counts:
            self._forget(source)
        else:
            source.rewind(position)

    def _deserialize(self, source: CompletedFetch, records: list[ConsumerRecord]) -> None:
        key_of = self._key_of
        value_of = self._value_of
        topic = source.state.topic
        done = 0
        try:
            for record in records:
                if key_of is not None and record.key is not None:
                    record.key = key_of(topic, record.key)
                if value_of is not None and record.value is not None:
                    record.value = value_of(topic, record.value)
                done += 1
        except Exception as problem:
            poison = int(records[done].offset)
            del records[done:]
            source.rewind(poison)
            partition = source.state.topic_partition
            poisoned = PoisonRecordError(
                f"{partition} at offset {poison}: {problem}; "
                f"consumer.seek({tuple(partition)}, {poison + 1}) leaves this record out",
                partition,
                poison,
                poison + 1,
            )
            # Compiled code does not note it by itself.
            poisoned.__cause__ = problem
            if not records:
                raise poisoned from problem
            source.problem = poisoned


class RecordIterator:
    """`for record in consumer`: waits for the next record, for ever, until the consumer is closed."""

    def __init__(self, fetch_buffer: FetchBuffer, await_chunk: Callable[[], bool]) -> None:
        self._fetch_buffer = fetch_buffer
        self._await_chunk = await_chunk

    def __iter__(self) -> RecordIterator:
        return self

    def is_ready(self) -> bool:
        """Whether the next record is there without a wait."""
        fetch_buffer = self._fetch_buffer
        return fetch_buffer.at < fetch_buffer.count and not fetch_buffer.is_doubtful

    def __next__(self) -> ConsumerRecord:
        fetch_buffer = self._fetch_buffer
        at = fetch_buffer.at
        if at >= fetch_buffer.count or fetch_buffer.is_doubtful:
            # In one call: a chunk is there, or the consumer is closed.
            if not self._await_chunk():
                raise StopIteration
            at = fetch_buffer.at
        fetch_buffer.at = at + 1
        return fetch_buffer.chunk[at]
