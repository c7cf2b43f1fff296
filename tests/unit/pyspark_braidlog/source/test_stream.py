"""What the stream reader tells Spark without asking a cluster."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from pyspark.sql.types import BinaryType, StructField, StructType

from braidlog import TopicPartition
from braidlog.core.errors import UserError
from pyspark_braidlog.data_source import DefaultSource
from pyspark_braidlog.source.offset_range import OffsetRange, RangePartition
from pyspark_braidlog.source.stream import FailedStreamReader, StreamReader, new_stream_reader
from pyspark_braidlog.source.stream_offset import StreamOffset

SCHEMA = StructType([StructField("value", BinaryType())])
T0, T1 = (TopicPartition("t", each) for each in range(2))
ALL = ReadAllAvailable()


def reader(**options: str) -> StreamReader:
    return new_stream_reader({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"} | options, SCHEMA)


def test_partitions_are_planned_without_a_cluster() -> None:
    start = StreamOffset({T0: 3, T1: 0}, {"t": "id"}).written()
    end = StreamOffset({T0: 5, T1: 8}, {"t": "id"}).written()
    planned = reader(maxRecordsPerPartition="4").partitions(start, end)
    works = [each.work for each in planned if isinstance(each, RangePartition)]
    assert works == [
        OffsetRange("t", 0, 3, 5, "id"),
        OffsetRange("t", 1, 0, 4, "id"),
        OffsetRange("t", 1, 4, 8, "id"),
    ]
    assert [each.work for each in reader(maxRecordsPerPartition="4").partitions(start, end)] == works  # type: ignore[attr-defined]


def test_the_reader_travels_to_the_tasks() -> None:
    assert pickle.loads(pickle.dumps(reader(groupId="job"))).getDefaultReadLimit() == ALL


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ALL),
        ({"maxOffsetsPerTrigger": "5"}, ReadMaxRows(5)),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "6"}, ReadMaxRows(6)),
    ],
)
def test_limits_that_spark_is_told(options: dict[str, str], limit: Any) -> None:
    assert reader(**options).getDefaultReadLimit() == limit


def test_before_anything_was_asked_nothing_is_reported() -> None:
    assert reader().reportLatestOffset() is None


def test_stopping_what_never_began_is_fine() -> None:
    reader(groupId="job").stop()


def test_a_schema_that_records_do_not_have_is_refused_before_there_are_any() -> None:
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    with pytest.raises(UserError, match="column value is binary, not string"):
        new_stream_reader(options, StructType().add("value", "string"))


def test_a_refusal_comes_with_the_first_question() -> None:
    """PySpark would bury it if the reader could not be made."""
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "endingOffsets": "latest"}
    refused = DefaultSource(options).streamReader(SCHEMA)
    start = StreamOffset({T0: 3}).written()
    for ask in (
        refused.initialOffset,
        refused.getDefaultReadLimit,
        lambda: refused.latestOffset(start, ALL),
        lambda: refused.partitions(start, start),
        lambda: refused.read(RangePartition(OffsetRange("t", 0, 0, 1))),
    ):
        with pytest.raises(UserError, match="endingOffsets is not valid in a streaming query"):
            ask()
    assert isinstance(pickle.loads(pickle.dumps(refused)), FailedStreamReader)
    refused.stop()
