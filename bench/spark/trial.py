"""One broker and one Spark session, and the measurements on them."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.brokers import Braidlog, topic
from bench.spark.data import PARTITIONS, fill_topic, write_files
from bench.spark.jobs import JobFailed, Jobs
from bench.spark.rows import FLOOR, READ_BATCH, READ_STREAM, TO_TOPIC, WRITE_BATCH, Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FLOOR_TOPIC = "floor"


class Trial:
    def __init__(self, spark: SparkSession, broker: Braidlog, work: Path, quick: bool) -> None:
        self._broker = broker
        self._work = work
        self._quick = quick
        self._jobs = Jobs(spark, f"127.0.0.1:{broker.port}", work)
        self._serial = 0
        self.failures: list[str] = []

    def prepare(self, rows: list[Row]) -> None:
        """Fill what the rows read from, once for all rounds and for both."""
        made: set[str | Path] = set()
        for row in rows:
            count = row.count(self._quick)
            if row.action == FLOOR and _FLOOR_TOPIC not in made:
                fill_topic(self._broker, _FLOOR_TOPIC, row.size, Jobs.floor_records(), "none", partitions=1)
                made.add(_FLOOR_TOPIC)
            elif row.action in (READ_BATCH, READ_STREAM) and _topic(row) not in made:
                fill_topic(self._broker, _topic(row), row.size, count, row.variant)
                made.add(_topic(row))
            elif row.action not in (FLOOR, READ_BATCH, READ_STREAM) and self._files(row) not in made:
                write_files(self._files(row), row.size, count)
                made.add(self._files(row))

    def measure(self, row: Row, who: str) -> float | None:
        """Rows a second, or milliseconds for the floor; None and a noted failure where it went wrong."""
        try:
            if row.action == FLOOR:
                return self._floor(row, who)
            count = row.count(self._quick)
            if row.action == READ_BATCH:
                return count / self._jobs.read_batch(who, _topic(row))
            if row.action == READ_STREAM:
                return count / self._jobs.read_stream(who, _topic(row), count)
            return count / self._write(row, who, count)
        except Exception as problem:
            message = str(problem).strip() or type(problem).__name__
            self.failures.append(f"{who}, {row.action}, {row.name}: {message.splitlines()[0][:300]}")
            return None

    def _floor(self, row: Row, who: str) -> float:
        if row.variant != TO_TOPIC:
            return self._jobs.floor(who, _FLOOR_TOPIC, None)
        with self._fresh_topic(1) as name:
            return self._jobs.floor(who, _FLOOR_TOPIC, name)

    def _write(self, row: Row, who: str, count: int) -> float:
        write = self._jobs.write_batch if row.action == WRITE_BATCH else self._jobs.write_stream
        with self._fresh_topic(PARTITIONS) as name:
            seconds = write(who, self._files(row), name, row.variant)
            there = self._records_in(name)
            if there < count:
                raise JobFailed(f"{count} rows were written, the broker has {there} records")
        return seconds

    def _fresh_topic(self, partitions: int) -> AbstractContextManager[str]:
        self._serial += 1
        return topic(self._broker, f"written-{self._serial}", partitions)

    def _files(self, row: Row) -> Path:
        return self._work / f"values-{row.size}"

    def _records_in(self, name: str) -> int:
        from braidlog.client.admin import Admin, OffsetSpec
        from braidlog.core.types import TopicPartition

        with Admin(bootstrap_servers=f"127.0.0.1:{self._broker.port}") as admin:
            ends = admin.list_offsets({TopicPartition(name, each): OffsetSpec.LATEST for each in range(PARTITIONS)})
            return sum(end.offset for end in ends.values())


def _topic(row: Row) -> str:
    return f"read-{row.size}-{row.variant}"
