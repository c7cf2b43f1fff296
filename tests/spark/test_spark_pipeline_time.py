"""De-duplication, windows and sessions by event time, in batches and in streams."""

from __future__ import annotations

import os
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow.parquet
import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline import deduplicate, sessions, windowed

START = datetime(2026, 5, 4, 12, 0)
COLUMNS = "id int, user string, amount int, timestamp timestamp"
Event = tuple[int, str, int, datetime]


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def batch(spark: SparkSession, events: list[Event]) -> DataFrame:
    return spark.createDataFrame(events, COLUMNS)


class Stream:
    """Files as micro-batches: each `add` is one."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._files = directory / "files"
        self._checkpoint = directory / "checkpoint"
        self._out = directory / "out"
        self._files.mkdir()
        self.frame = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(self._files))
        self._count = 0

    def add(self, *events: Event) -> None:
        self._count += 1
        table = batch(self._spark, list(events)).coalesce(1).toArrow()
        name = self._files / f"{self._count:04}.parquet"
        pyarrow.parquet.write_table(table, name)
        # Spark takes files in the order of their times, which are whole milliseconds.
        os.utime(name, (self._count, self._count))

    def append(self, frame: DataFrame) -> list[Row]:
        query = (
            frame.writeStream.format("parquet")
            .option("path", str(self._out))
            .option("checkpointLocation", str(self._checkpoint))
            .outputMode("append")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return self._spark.read.schema(frame.schema).parquet(str(self._out)).collect()


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path)


def test_a_batch_keeps_the_first_of_rows_that_are_close(spark: SparkSession) -> None:
    rows = [(1, "a", 0, at(0)), (1, "b", 0, at(5)), (2, "c", 0, at(6)), (1, "d", 0, at(14)), (1, "e", 0, at(40))]
    kept = deduplicate(batch(spark, rows), "id", within="10 minutes").orderBy("timestamp").collect()
    assert [row.user for row in kept] == ["a", "c", "e"]
    with pytest.raises(UserError, match="no column 'order'"):
        deduplicate(batch(spark, rows), ["id", "order"], within="10 minutes")


def test_a_stream_drops_duplicates_of_earlier_micro_batches(stream: Stream) -> None:
    stream.add((1, "first", 0, at(0)), (2, "first", 0, at(1)), (1, "again", 0, at(2)))
    stream.add((2, "again", 0, at(3)), (3, "first", 0, at(4)))
    stream.add((1, "again", 0, at(9)))
    kept = stream.append(deduplicate(stream.frame, ["id"], within="10 minutes"))
    assert sorted((row.id, row.user) for row in kept) == [(1, "first"), (2, "first"), (3, "first")]


def test_windows_count_and_sum(spark: SparkSession) -> None:
    rows = [(1, "ann", 5, at(0)), (2, "ann", 7, at(0.9)), (3, "bob", 1, at(0.5)), (4, "ann", 2, at(1))]
    found = windowed(
        batch(spark, rows), size="1 minute", late=None, by="user", aggregates={"n": "count(*)", "paid": F.sum("amount")}
    )
    assert found.columns == ["window_start", "window_end", "user", "n", "paid"]
    assert sorted(found.collect()) == [
        (at(0), at(1), "ann", 2, 12),
        (at(0), at(1), "bob", 1, 1),
        (at(1), at(2), "ann", 1, 2),
    ]
    sliding = windowed(
        batch(spark, rows[:1]), size="2 minutes", slide="1 minute", late=None, aggregates={"n": "count(*)"}
    )
    assert sorted(sliding.collect()) == [(at(-1), at(1), 1), (at(0), at(2), 1)]
    with pytest.raises(UserError, match="at least one aggregate"):
        windowed(batch(spark, rows), size="1 minute", late=None, aggregates={})


def test_a_stream_closes_a_window_once_nothing_late_is_waited_for(stream: Stream) -> None:
    stream.add((1, "ann", 5, at(0)), (2, "ann", 7, at(1.5)), (3, "ann", 1, at(5)))
    stream.add((4, "ann", 1, at(0.5)))
    stream.add((5, "ann", 100, at(0.6)), (6, "ann", 1, at(9)))
    found = windowed(stream.frame, size="1 minute", late="2 minutes", by=["user"], aggregates={"paid": F.sum("amount")})
    # A late event still counts in the batch that closes its window; one of the batch after that does not.
    assert sorted((row.window_start, row.paid) for row in stream.append(found)) == [
        (at(0), 6),
        (at(1), 7),
        (at(5), 1),
    ]


def test_sessions_end_with_a_pause(spark: SparkSession) -> None:
    rows = [(1, "ann", 1, at(0)), (2, "ann", 1, at(4)), (3, "ann", 1, at(20)), (4, "bob", 1, at(4))]
    found = sessions(batch(spark, rows), gap="5 minutes", late=None, by="user", aggregates={"clicks": "count(*)"})
    assert found.columns == ["session_start", "session_end", "user", "clicks"]
    assert sorted(found.collect()) == [
        (at(0), at(9), "ann", 2),
        (at(4), at(9), "bob", 1),
        (at(20), at(25), "ann", 1),
    ]
