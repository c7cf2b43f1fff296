"""Plans of batch reads, over logs that are written down."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterable, Mapping
from typing import ClassVar

import pytest
from pyspark.sql.datasource import DataSourceReader, EqualTo, GreaterThan, GreaterThanOrEqual, IsNotNull
from pyspark.sql.types import StructType

from braidlog import TopicPartition
from braidlog.core.errors import UserError
from pyspark_braidlog.source.batch import FilteredBatchReader, new_batch_reader, planned
from pyspark_braidlog.source.filters import Narrowing
from pyspark_braidlog.source.offset_range import OffsetRange
from pyspark_braidlog.source.options import ReadOptions
from pyspark_braidlog.source.schema import record_schema
from pyspark_braidlog.source.topics import ConsumerStrategy, TopicFacts

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Logs:
    """Partition 0 has the offsets 4 to 9, partition 1 none; a record's time in milliseconds is its offset."""

    first: ClassVar = {P0: 4, P1: 0}
    end: ClassVar = {P0: 10, P1: 0}

    def topics(self, consumer_strategy: ConsumerStrategy) -> dict[str, TopicFacts]:
        return {"t": TopicFacts("id", (0, 1))}

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self.first[each] for each in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self.end[each] for each in partitions}

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {P0: int(group), P1: 0}

    def at_time(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        found = {each: max(time, self.first[each]) for each, time in timestamps_ms.items()}
        return {each: offset if offset < self.end[each] else None for each, offset in found.items()}


def plan(narrowing: Narrowing | None = None, **options: str) -> list[OffsetRange]:
    return planned(Logs(), ReadOptions.for_batch({**BASE, **options}), narrowing or Narrowing())


def offsets(first: int, second: int = 0) -> str:
    return f'{{"t": {{"0": {first}, "1": {second}}}}}'


def test_offsets_that_a_group_committed_are_held_against_the_logs() -> None:
    assert plan(startingOffsets="committed", groupId="6") == [OffsetRange("t", 0, 6, 10, "id")]
    assert plan(startingOffsets="committed", groupId="10") == []
    with pytest.raises(UserError, match=r"t-0: offsets from 1 are asked for, but the log begins at 4 \(3 were deleted"):
        plan(startingOffsets="committed", groupId="1")
    lossy = plan(startingOffsets="committed", groupId="1", failOnDataLoss="false")
    assert lossy == [OffsetRange("t", 0, 4, 10, "id")]


def test_all_there_is_with_the_topics_id() -> None:
    assert plan() == [OffsetRange("t", 0, 4, 10, "id")]


def test_offsets_that_were_deleted_fail_the_query() -> None:
    with pytest.raises(UserError, match=r"t-0: offsets from 1 are asked for, but the log begins at 4 \(3 were deleted"):
        plan(startingOffsets=offsets(1))
    with pytest.raises(UserError, match=r"begins at 4 \(2 were deleted"):
        plan(startingOffsets=offsets(0), endingOffsets=offsets(2))


def test_offsets_that_are_not_there_yet_fail_the_query() -> None:
    with pytest.raises(UserError, match="t-0: offsets up to 11 are asked for, but the log ends at 10"):
        plan(endingOffsets=offsets(11))


def test_what_is_there_is_read_if_loss_is_allowed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        found = plan(startingOffsets=offsets(1), endingOffsets=offsets(30), failOnDataLoss="false")
    assert found == [OffsetRange("t", 0, 4, 10, "id")]
    assert "the log begins at 4" in caplog.text
    assert plan(startingOffsets=offsets(0), endingOffsets=offsets(2), failOnDataLoss="false") == []
    assert plan(startingOffsets=offsets(20), endingOffsets=offsets(30), failOnDataLoss="false") == []


@pytest.mark.parametrize("loss", ["true", "false"])
def test_a_start_after_the_end_is_refused(loss: str) -> None:
    with pytest.raises(UserError, match="t-0 would be read from offset 12 to 10: the start is after the end"):
        plan(startingOffsets=offsets(12), failOnDataLoss=loss)
    with pytest.raises(UserError, match="from offset 8 to 6"):
        plan(
            startingTimestamp="8",
            startingOffsetsByTimestampStrategy="latest",
            endingTimestamp="6",
            failOnDataLoss=loss,
        )


def test_a_range_of_nothing_is_no_mistake() -> None:
    assert plan(startingOffsets=offsets(10)) == []
    assert plan(startingOffsets=offsets(6), endingOffsets=offsets(6)) == []


def test_filters_narrow_the_plan() -> None:
    assert plan(Narrowing(first_offset=6, end_offset=8)) == [OffsetRange("t", 0, 6, 8, "id")]
    assert plan(Narrowing(kept=(EqualTo(("partition",), 1),))) == []
    assert plan(Narrowing(from_ms=7)) == [OffsetRange("t", 0, 7, 10, "id")]
    assert plan(Narrowing(from_ms=50)) == []
    assert plan(Narrowing(from_ms=7, first_offset=8)) == [OffsetRange("t", 0, 8, 10, "id")]
    assert plan(Narrowing(from_ms=7), endingOffsets=offsets(6)) == []


def test_tasks_are_cut_after_filters() -> None:
    found = plan(Narrowing(first_offset=6), minPartitions="2")
    assert found == [OffsetRange("t", 0, 6, 8, "id"), OffsetRange("t", 0, 8, 10, "id")]


class TestReader:
    schema = record_schema(with_headers=False)

    def test_only_takes_filters_when_it_is_asked_to(self) -> None:
        # Spark refuses to plan with a reader that has its own pushFilters while pushing is off.
        plain = new_batch_reader(BASE, self.schema)
        assert type(plain).pushFilters is DataSourceReader.pushFilters
        assert isinstance(new_batch_reader({**BASE, "pushFilters": "true"}, self.schema), FilteredBatchReader)

    def test_gives_back_what_spark_has_to_evaluate(self) -> None:
        reader = new_batch_reader({**BASE, "pushFilters": "true"}, self.schema)
        value = EqualTo(("value",), b"x")
        time = GreaterThanOrEqual(("timestamp",), None)
        left = list(reader.pushFilters([IsNotNull(("offset",)), GreaterThan(("offset",), 3), value, time]))
        assert left == [value, time]

    def test_travels_to_tasks(self) -> None:
        reader = new_batch_reader({**BASE, "pushFilters": "true"}, self.schema)
        reader.pushFilters([GreaterThan(("offset",), 3)])
        assert pickle.loads(pickle.dumps(reader)).__dict__ == reader.__dict__

    def test_refuses_a_schema_that_no_record_has(self) -> None:
        with pytest.raises(UserError, match="name"):
            new_batch_reader(BASE, StructType().add("name", "string"))

    def test_says_which_options_are_for_streams(self, caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.WARNING):
            new_batch_reader({**BASE, "maxoffsetspertrigger": "5"}, self.schema)
        assert "maxOffsetsPerTrigger has no effect in a batch query" in caplog.text
