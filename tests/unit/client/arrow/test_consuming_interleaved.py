"""Tables, polls, iteration, seeks and pauses in any order: every record once and in order, positions that never lie."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import TypeVar

import pytest

from braidlog.client.arrow.consuming import poll_arrow
from braidlog.client.consumer.fetch.completed_fetch import AbortedRange, CompletedFetch
from braidlog.client.consumer.fetch.fetch_buffer import FetchBuffer
from braidlog.client.consumer.partition_state import PartitionState
from braidlog.core.types import TopicPartition
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record

T = TypeVar("T")
END = 60


class Log:
    """Batches with gaps, transactions that were committed and some that were not; `visible` is what a reader gets."""

    def __init__(self, luck: random.Random) -> None:
        self.batches: list[tuple[int, bytes]] = []
        self.visible: list[int] = []
        # With the offset of the marker that ends each.
        self.aborted: list[tuple[AbortedRange, int]] = []
        at = 0
        while at < END:
            count = luck.randint(1, 6)
            records = [Record(at + each, 1_000, None, b"%d" % (at + each)) for each in range(count)]
            kind = luck.choice(["plain", "plain", "compacted", "committed", "aborted"])
            at = self._add(luck, kind, at, records)

    def _add(self, luck: random.Random, kind: str, at: int, records: list[Record]) -> int:
        after = at + len(records)
        codec = luck.choice([0, 1])
        if kind == "compacted":
            records = [each for each in records if luck.random() < 0.5] or records
            self.batches.append((after, build_batch(records, base_offset=at, codec=codec, keep_offsets=True)))
        elif kind == "plain":
            self.batches.append((after, build_batch(records, base_offset=at, codec=codec)))
        else:
            name = {"producer_id": luck.randint(1, 3), "producer_epoch": 0}
            data = build_batch(records, base_offset=at, codec=codec, base_sequence=0, transactional=True, **name)
            self.batches.append((after, data))
            marker = build_end_txn_marker(commit=kind == "committed", timestamp=1_000, base_offset=after, **name)
            self.batches.append((after + 1, marker))
        if kind == "aborted":
            self.aborted.append((AbortedRange(name["producer_id"], at), after))
        else:
            self.visible += [each.offset for each in records]
        return after if kind in ("plain", "compacted") else after + 1


class Program:
    """Does as chance says with the fetch buffer of a consumer, and checks what it gets."""

    def __init__(self, seed: int) -> None:
        self.luck = random.Random(seed)
        self._fetch_buffer = FetchBuffer(threading.RLock(), lambda: None)
        self.states = [PartitionState(TopicPartition("t", number)) for number in range(3)]
        self.logs = [Log(self.luck) for _ in self.states]
        self.fetched = [0] * len(self.states)
        # From where on the next record of each is to be.
        self.wanted = [0] * len(self.states)
        for state in self.states:
            state.seek(0)

    def _poll_fetches(self, take: Callable[[FetchBuffer], T | None], timeout_s: float) -> T | None:
        self._fetch_buffer.update_position()
        return take(self._fetch_buffer)

    def arrive(self, partition: int) -> None:
        log, state, position = self.logs[partition], self.states[partition], self.fetched[partition]
        found = [each for each in log.batches if each[0] > position][: self.luck.randint(1, 4)]
        if not found:
            return
        end = found[-1][0]
        data = b"".join(content for _, content in found)
        aborted = [each for each, marker in log.aborted if marker >= position and each.first_offset < end]
        self._fetch_buffer.incoming.append(CompletedFetch(state, data, 0, len(data), position, aborted))
        self._fetch_buffer.arrived += len(data)
        state.fetched += 1
        self.fetched[partition] = end

    def get(self, partition: int, offset: int, value: bytes) -> None:
        coming = [each for each in self.logs[partition].visible if each >= self.wanted[partition]]
        assert coming[:1] == [offset], "lost, twice, or out of order"
        assert int(value) == offset
        self.wanted[partition] = offset + 1

    def poll(self, most: int) -> None:
        for record in self._fetch_buffer.take(most):
            self.get(record.partition, record.offset, record.value)

    def iterate(self) -> None:
        for _ in range(self.luck.randint(1, 4)):
            record = self._fetch_buffer.pop()
            if record is None:
                self._fetch_buffer.update_position()
                record = self._fetch_buffer.pop() if self._fetch_buffer.refill(self.luck.choice([3, 500])) else None
            if record is not None:
                self.get(record.partition, record.offset, record.value)

    def take_table(self) -> None:
        table = poll_arrow(self, 0.0, self.luck.choice([None, 1, 3, 7]), ["partition", "offset", "value"])
        for row in table.to_pylist():
            self.get(row["partition"], row["offset"], row["value"])

    def seek(self) -> None:
        partition, offset = self.luck.randrange(len(self.states)), self.luck.randrange(END)
        self.states[partition].seek(offset)
        self.wanted[partition] = self.fetched[partition] = offset

    def pause_or_resume(self) -> None:
        state = self.luck.choice(self.states)
        state.is_paused = not state.is_paused

    def check_positions(self) -> None:
        for partition, state in enumerate(self.states):
            assert state.position >= self.wanted[partition]
            passed = range(self.wanted[partition], int(state.position))
            assert not set(passed) & set(self.logs[partition].visible), "the position is past what was not returned"


@pytest.mark.parametrize("seed", range(60))
def test_whatever_takes_turns_every_record_comes_once(seed: int) -> None:
    program = Program(seed)
    steps: list[Callable[[], None]] = [program.iterate, program.take_table, program.seek, program.pause_or_resume]
    steps += [lambda: program.arrive(program.luck.randrange(3))] * 4
    steps += [lambda: program.poll(program.luck.randint(1, 9)), program.iterate, program.take_table]
    for _ in range(100):
        program.luck.choice(steps)()
        program._fetch_buffer.update_position()
        program.check_positions()
    for state in program.states:
        state.is_paused = False
    for _ in range(END):
        for partition in range(len(program.states)):
            program.arrive(partition)
        program.poll(50)
    for partition, log in enumerate(program.logs):
        assert all(each < program.wanted[partition] for each in log.visible)
    assert program._fetch_buffer.arrived == program._fetch_buffer.drained
    assert all(state.fetched == state.drained for state in program.states)
