"""A log against a plain list of batches: whatever is done to it, in whatever order, reads give the same."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from braidlog.core.errors import StorageFault
from braidlog.wire.records.reading import read_records
from support.log_kit import FailingDisk, Kit, batch, read_all


class ModelBatch:
    def __init__(self, base: int, values: list[bytes], timestamp: int, last_sequence: int) -> None:
        self.base = base
        self.last_sequence = last_sequence
        self.values = values
        self.timestamp = timestamp

    @property
    def end(self) -> int:
        return self.base + len(self.values)

    def records(self) -> list[tuple[int, bytes | None]]:
        return [(self.base + number, value) for number, value in enumerate(self.values)]


class LogMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="braidlog-model-"))
        self.disk = FailingDisk()
        self.kit = Kit(self.root, self.disk, capacity=4, segment_bytes=700, index_interval_bytes=150)
        self.log = self.kit.open()
        self.written: list[ModelBatch] = []
        self.staged: list[ModelBatch] = []
        self.start = 0
        self.end = 0
        self.serial = 0
        self.sequence = 0
        self.staged_sequence = 0

    def teardown(self) -> None:
        self.log.close(flush=False)
        shutil.rmtree(self.root)

    @initialize(interval=st.sampled_from([0, 150, 4096]))
    def choose_index_density(self, interval: int) -> None:
        self.kit.settings = self.kit.settings._replace(index_interval_bytes=interval)
        self.log.update_settings(self.kit.settings)

    def next_end(self) -> int:
        return self.staged[-1].end if self.staged else self.end

    @rule(count=st.integers(1, 4), width=st.sampled_from([1, 30, 120]), jump_ms=st.integers(-2000, 5000))
    def stage(self, count: int, width: int, jump_ms: int) -> None:
        values = []
        for _ in range(count):
            values.append(b"%d" % self.serial + b"." * width)
            self.serial += 1
        timestamp = self.kit.clock.wall_ms() + jump_ms
        data = batch(*values, timestamp=timestamp, producer_id=1, epoch=0, sequence=self.staged_sequence)
        info = self.kit.stage(self.log, data)
        assert (info.first_offset, info.duplicate) == (self.next_end(), False)
        if info.rolled:
            self.note_written()
        self.staged_sequence += count
        self.staged.append(ModelBatch(info.first_offset, values, timestamp, self.staged_sequence - 1))
        self.kit.clock.advance(1)

    @rule()
    def write(self) -> None:
        self.log.write_staged()
        self.note_written()

    def note_written(self) -> None:
        self.written += self.staged
        self.staged = []
        self.end = self.written[-1].end if self.written and self.written[-1].end > self.end else self.end
        self.sequence = self.staged_sequence

    @precondition(lambda self: self.staged)
    @rule(room=st.integers(0, 60))
    def fail_to_write(self, room: int) -> None:
        self.disk.room, self.disk.only = room, ".log"
        with pytest.raises(StorageFault):
            self.log.write_staged()
        self.disk.room = None
        self.staged = []
        self.staged_sequence = self.sequence

    @rule()
    def roll(self) -> None:
        self.log.roll()
        self.note_written()

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        target = max(self.end - back, self.start)
        self.log.truncate_to(target)
        self.staged = []
        self.written = [known for known in self.written if known.end <= target]
        self.end = min(self.end, target)
        self.resume_sequence()

    def resume_sequence(self) -> None:
        """Of data below the log start the log may or may not remember the producer; of the rest it must."""
        known = [producer.last_sequence for producer in self.log.producer_state.producers.values()]
        visible = [item.last_sequence for item in self.written if item.end > self.start]
        if visible:
            assert known == visible[-1:]
        self.sequence = self.staged_sequence = known[0] + 1 if known else 0

    @rule(clean=st.booleans())
    def reopen(self, clean: bool) -> None:
        self.log.close(flush=clean)
        if clean:
            self.note_written()
        self.staged = []
        point = self.log.recovery_point
        self.log = self.kit.open(
            clean=clean, recovery_point=point, log_start_offset=self.start, high_watermark=self.end
        )
        assert self.log.recovery.lost == []
        # After a truncation into a batch the end is not where data ends, and a start finds only the data.
        self.end = self.log.log_end_offset
        assert self.end >= (self.written[-1].end if self.written else self.start)
        self.resume_sequence()

    @rule()
    def sync(self) -> None:
        self.log.sync_to(self.end)
        assert self.log.recovery_point == self.end

    @rule(forward=st.integers(0, 6))
    def move_start(self, forward: int) -> None:
        self.log.advance_high_watermark(self.end)
        target = min(self.start + forward, self.log.high_watermark)
        self.log.increment_log_start_offset(target)
        self.start = max(self.start, target)

    @rule()
    def delete_oldest(self) -> None:
        self.log.write_staged()
        self.note_written()
        self.log.advance_high_watermark(self.end)
        for deleted in self.log.delete_segments(1):
            deleted.remove()
        self.start = max(self.start, self.log.log_start_offset)
        assert self.start == self.log.log_start_offset

    @rule(data=st.data(), max_bytes=st.integers(0, 900))
    def read_somewhere(self, data: st.DataObject, max_bytes: int) -> None:
        if self.start > self.end:
            return
        offset = data.draw(st.integers(self.start, self.end))
        limit = data.draw(st.integers(offset, self.end))
        read = self.log.read(offset, max_bytes, limit)
        readable = [known for known in self.written if known.end > offset and known.end <= limit]
        if not readable:
            assert read.slice is None
            return
        assert read.slice is not None
        found = [(record.offset, record.value) for record in read_records(read.slice.read())]
        expected = [record for known in readable for record in known.records()]
        assert found == expected[: len(found)]
        assert found[-1][0] + 1 in {known.end for known in readable}
        assert read.slice.size <= max_bytes or len(found) == len(readable[0].values)

    @rule(data=st.data())
    def find_by_time(self, data: st.DataObject) -> None:
        known = [item for item in self.written if item.end > self.start]
        if not known:
            return
        target = data.draw(st.sampled_from(known)).timestamp + data.draw(st.integers(-2, 3))
        expected = next(
            (
                (item.timestamp + number, item.base + number)
                for item in known
                for number in range(len(item.values))
                if item.timestamp + number >= target and item.base + number >= self.start
            ),
            None,
        )
        found = self.log.offset_for_timestamp(target)
        assert (None if found is None else (found.timestamp, found.offset)) == expected

    @invariant()
    def everything_is_there_once_and_in_order(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert self.log.next_offset == self.next_end()
        expected = [record for known in self.written for record in known.records() if record[0] >= self.start]
        assert read_all(self.log, self.start, 333) == expected

    @invariant()
    def the_producer_is_known(self) -> None:
        for producer in self.log.producer_state.producers.values():
            assert producer.last_sequence == self.staged_sequence - 1


LogMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
TestLogModel = LogMachine.TestCase
