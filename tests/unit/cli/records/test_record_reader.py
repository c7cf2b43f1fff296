"""Reading to an end, and committing what was printed, with a consumer in memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

import pytest

from braidlog.cli.records.offset_range import OffsetKind, OffsetPosition, positions_of
from braidlog.cli.records.record_reader import Chunk, RecordReader
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata, OffsetAndTimestamp
from braidlog.client.consumer.record import ConsumerRecord
from braidlog.client.errors import CommitFailedError, NoOffsetError
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import RebalanceInProgressError
from braidlog.core.types import TopicPartition

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeConsumer:
    """Logs that may start late; each record's timestamp is ten times its offset."""

    def __init__(self, logs: Mapping[TopicPartition, range]) -> None:
        self.logs = dict(logs)
        self.positions = {each: log.start for each, log in logs.items()}
        self.paused: set[TopicPartition] = set()
        self.committed: dict[TopicPartition, OffsetAndMetadata] = {}
        self.refusals: list[Exception] = []

    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self.positions)

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self.logs[each].start for each in partitions}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self.logs[each].stop for each in partitions}

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        for each, time_ms in times.items():
            offset = next((offset for offset in self.logs[each] if offset * 10 >= time_ms), None)
            found[each] = None if offset is None else OffsetAndTimestamp(offset, offset * 10)
        return found

    def position(self, partition: TopicPartition) -> int:
        return self.positions[partition]

    def lag(self, partition: TopicPartition, timeout_s: float) -> int:
        return max(self.logs[partition].stop - self.positions[partition], 0)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self.paused |= set(partitions)

    def poll(self, timeout_s: float, max_records: int) -> list[ConsumerRecord]:
        for each in sorted(set(self.positions) - self.paused):
            log, position = self.logs[each], self.positions[each]
            if not log.start <= position <= log.stop:
                raise NoOffsetError("out of range", each, position)
            offsets = range(position, min(position + max_records, log.stop))
            if offsets:
                self.positions[each] = offsets.stop
                return [ConsumerRecord(*each, offset, offset * 10, None, b"") for offset in offsets]
        return []

    def chunks(self, timeout_s: float, most: int, ends: Mapping[TopicPartition, int]) -> list[Chunk]:
        records = self.poll(timeout_s, most)
        if not records:
            return []
        where = records[0].topic_partition
        shown = [each for each in records if each.offset < ends.get(where, each.offset + 1)]
        if not shown:
            return []
        return [Chunk(where, len(shown), repr([each.offset for each in shown]).encode(), shown[-1].offset + 1, -1)]

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        if self.refusals:
            raise self.refusals.pop(0)
        self.committed.update(offsets)


def reader(fake: FakeConsumer, **options: Any) -> tuple[RecordReader, list[tuple[int, int]]]:
    printed: list[tuple[int, int]] = []

    def emit(chunk: Chunk) -> None:
        printed.extend((chunk.partition.partition, offset) for offset in json.loads(chunk.text))

    return RecordReader(cast(Any, fake), _Source(fake), emit, **options), printed


class _Source:
    def __init__(self, fake: FakeConsumer) -> None:
        self.poll = fake.chunks


def test_the_end_is_what_it_was_at_the_start() -> None:
    fake = FakeConsumer({ZERO: range(3), ONE: range(0)})
    reading, printed = reader(fake, until_end=True)
    original = fake.poll

    def poll(timeout_s: float, max_records: int) -> list[ConsumerRecord]:
        fake.logs[ZERO] = range(5)
        return original(timeout_s, max_records)

    fake.poll = poll  # type: ignore[method-assign]
    reading.run()
    assert printed == [(0, 0), (0, 1), (0, 2)]
    assert fake.paused == {ZERO, ONE}


def test_so_many_and_no_more() -> None:
    fake = FakeConsumer({ZERO: range(10)})
    reading, printed = reader(fake, most=4, commits=True)
    reading.run()
    reading.commit()
    assert printed == [(0, offset) for offset in range(4)]
    assert fake.committed[ZERO].offset == 4


def test_silence_ends_it() -> None:
    fake = FakeConsumer({ZERO: range(2)})
    reading, printed = reader(fake, idle_s=0.01)
    reading.run()
    assert len(printed) == 2


def test_what_retention_took_is_left_out_with_a_remark(capsys: pytest.CaptureFixture[str]) -> None:
    fake = FakeConsumer({ZERO: range(5, 8)})
    fake.seek(ZERO, 2)
    reading, printed = reader(fake, until_end=True)
    reading.run()
    assert printed == [(0, 5), (0, 6), (0, 7)]
    assert "t-0 starts at offset 5 by now; going on there instead of 2" in capsys.readouterr().err


def test_an_offset_that_is_still_to_come_is_a_mistake() -> None:
    fake = FakeConsumer({ZERO: range(5)})
    fake.seek(ZERO, 50)
    with pytest.raises(UserError, match="t-0 ends at offset 5 and has no offset 50 yet"):
        reader(fake)[0].run()
    with pytest.raises(UserError, match="t-0 ends at offset 5 and has no offset 50 yet"):
        reader(fake, until_end=True)[0].run()


def test_a_range_ends_by_itself_in_each_partition() -> None:
    fake = FakeConsumer({ZERO: range(10), ONE: range(4)})
    fake.seek(ZERO, 2)
    fake.seek(ONE, 4)
    reading, printed = reader(fake)
    reading.stop_at({ZERO: 5, ONE: 4})
    reading.run()
    assert printed == [(0, 2), (0, 3), (0, 4)]
    assert fake.paused == {ZERO, ONE}


def test_a_range_beyond_the_log_waits_for_it_unless_told_to_end_there() -> None:
    fake = FakeConsumer({ZERO: range(3)})
    reading, printed = reader(fake, until_end=True)
    reading.stop_at({ZERO: 9})
    reading.run()
    assert printed == [(0, 0), (0, 1), (0, 2)]
    fake = FakeConsumer({ZERO: range(3)})
    reading, printed = reader(fake)
    reading.stop_at({ZERO: 5})
    original = fake.poll

    def poll(timeout_s: float, max_records: int) -> list[ConsumerRecord]:
        records = original(timeout_s, max_records)
        fake.logs[ZERO] = range(9)
        return records

    fake.poll = poll  # type: ignore[method-assign]
    reading.run()
    assert printed == [(0, offset) for offset in range(5)]


def test_a_range_that_begins_beyond_the_log_is_a_mistake() -> None:
    fake = FakeConsumer({ZERO: range(3)})
    fake.seek(ZERO, 7)
    reading, _ = reader(fake)
    reading.stop_at({ZERO: 9})
    with pytest.raises(UserError, match="ends at offset 3 and has no offset 7 yet"):
        reading.run()


def test_who_waits_is_told_once_and_only_if_nothing_was_read() -> None:
    said: list[object] = []
    fake = FakeConsumer({ZERO: range(3)})
    reader(fake, idle_s=0.01, waiting=said.append)[0].run()
    assert said == [], "records came"
    fake.seek(ZERO, 3)
    reader(fake, idle_s=0.01, waiting=said.append)[0].run()
    assert said == [fake]


def test_a_group_that_settles_is_told_later_and_one_that_went_on_not_at_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake = FakeConsumer({ZERO: range(2)})
    reading, _ = reader(fake, most=2, commits=True)
    reading.run()
    fake.refusals = [RebalanceInProgressError("settling")]
    reading.commit()
    assert fake.committed == {}
    reading.commit()
    assert fake.committed[ZERO].offset == 2
    fake.logs[ZERO] = range(3)
    reading, _ = reader(fake, most=1, commits=True)
    reading.run()
    fake.refusals = [CommitFailedError("the group went on")]
    reading.commit()
    reading.commit()
    assert fake.committed[ZERO].offset == 2
    assert "another member may print them again" in capsys.readouterr().err


def test_what_was_printed_of_a_partition_that_went_and_came_back_is_not_committed() -> None:
    fake = FakeConsumer({ZERO: range(2)})
    reading, _ = reader(fake, most=2, commits=True)
    reading.run()
    reading.forget([ZERO])
    # Lost, read on by another member, and ours again.
    fake.committed[ZERO] = OffsetAndMetadata(9)
    reading.commit()
    assert fake.committed[ZERO].offset == 9


@pytest.mark.parametrize(
    ("where", "positions"),
    [
        (OffsetPosition(OffsetKind.EARLIEST), {ZERO: 5, ONE: 0}),
        (OffsetPosition(OffsetKind.LATEST), {ZERO: 8, ONE: 20}),
        (OffsetPosition(OffsetKind.OFFSET, 6), {ZERO: 6, ONE: 6}),
        (OffsetPosition(OffsetKind.BEFORE_END, 4), {ZERO: 5, ONE: 16}),
        (OffsetPosition(OffsetKind.TIME, 71), {ZERO: 8, ONE: 8}),
    ],
)
def test_where_to_begin(where: OffsetPosition, positions: dict[TopicPartition, int]) -> None:
    fake = FakeConsumer({ZERO: range(5, 8), ONE: range(20)})
    assert positions_of(cast(Any, fake), [ZERO, ONE], where) == positions
