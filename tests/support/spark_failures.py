"""The four ways in which a Spark query meets a broker, each taken to the point where it fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from pyspark.sql import SparkSession

from pyspark_braidlog.errors import clear_error

READ, READ_STREAM, WRITE, WRITE_STREAM = "batch read", "stream read", "batch write", "stream write"
READS, WRITES = (READ, READ_STREAM), (WRITE, WRITE_STREAM)
KINDS_OF_QUERY = (*READS, *WRITES)
# Clients are patient for ten seconds; the rest is Spark on a busy machine.
SOON_S = 90.0


class ReportedError(NamedTuple):
    """What a user gets: one line, the whole text, and how long it took."""

    line: str
    text: str
    seconds: float


class FailingQueries:
    def __init__(self, spark: SparkSession, place: Path) -> None:
        self._spark = spark
        self._place = place
        self._ways: Mapping[str, Callable[[Mapping[str, str]], None]] = {
            READ: self._read,
            READ_STREAM: self._read_stream,
            WRITE: self._write,
            WRITE_STREAM: self._write_stream,
        }

    def failing(self, way: str, options: Mapping[str, str]) -> ReportedError:
        began = time.monotonic()
        with pytest.raises(Exception) as caught:
            self._ways[way](options)
        seconds = time.monotonic() - began
        assert seconds < SOON_S, f"{way}: the error came after {seconds:.0f} s"
        return ReportedError(clear_error(caught.value), str(caught.value), seconds)

    def _read(self, options: Mapping[str, str]) -> None:
        self._spark.read.format("braidlog").options(**options).load().collect()

    def _read_stream(self, options: Mapping[str, str]) -> None:
        frame = self._spark.readStream.format("braidlog").options(**options).load()
        query = frame.writeStream.format("noop").option("checkpointLocation", self._checkpoint())
        query.trigger(availableNow=True).start().awaitTermination()

    def _write(self, options: Mapping[str, str]) -> None:
        rows = self._spark.createDataFrame([("a",), ("b",)], "value string")
        rows.write.format("braidlog").options(**options).mode("append").save()

    def _write_stream(self, options: Mapping[str, str]) -> None:
        source = self._place / "lines"
        source.mkdir(exist_ok=True)
        (source / "one.txt").write_text("a\nb\n")
        writer = self._spark.readStream.text(str(source)).writeStream.format("braidlog").options(**options)
        writer.option("checkpointLocation", self._checkpoint()).trigger(availableNow=True).start().awaitTermination()

    def _checkpoint(self) -> str:
        return str(self._place / f"checkpoint-{time.monotonic_ns()}")


def target(way: str, topic: str) -> dict[str, str]:
    """The option that names the topic."""
    return {"subscribe": topic} if way in READS else {"topic": topic}
