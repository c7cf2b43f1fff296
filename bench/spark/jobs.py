"""The jobs that are timed, the same for both formats: only the name of the format and its own options differ."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.spark.rows import FLOOR_BATCHES, JVM, LEAST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

TIMEOUT_S: Final = 600
# The first batches of a query make connections and compile code.
_FLOOR_WARM: Final = 5


class JobFailed(Exception):
    """A job did not end, or did not do what it was to do."""


class Jobs:
    def __init__(self, spark: SparkSession, bootstrap: str, scratch: Path) -> None:
        self._spark = spark
        self._broker = {"kafka.bootstrap.servers": bootstrap}
        self._scratch = scratch
        self._serial = 0

    def read_batch(self, who: str, topic: str) -> float:
        """Seconds from the first word of the query to its end, planning included."""
        began = time.perf_counter()
        frame = self._spark.read.format(_format(who)).options(**self._broker, subscribe=topic).load()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    def read_stream(self, who: str, topic: str, count: int) -> float:
        writer = self._stream_of(who, topic).writeStream.format("noop")
        seconds, rows, _ = self._run(writer)
        if rows != count:
            raise JobFailed(f"{count} records were there, {rows} rows were read")
        return seconds

    def write_batch(self, who: str, files: Path, topic: str, codec: str) -> float:
        frame = self._spark.read.parquet(str(files))
        options = {**self._broker, "topic": topic, "kafka.compression.type": codec}
        began = time.perf_counter()
        frame.write.format(_format(who)).options(**options).mode("append").save()
        return time.perf_counter() - began

    def write_stream(self, who: str, files: Path, topic: str, codec: str) -> float:
        source = self._spark.readStream.schema("value binary").parquet(str(files))
        seconds, _, _ = self._run(self._sink(source, who, topic, codec))
        return seconds

    def floor(self, who: str, source: str, target: str | None) -> float:
        """The median batch's milliseconds, of batches of one record."""
        frame = self._stream_of(who, source, maxOffsetsPerTrigger="1")
        writer = frame.writeStream.format("noop") if target is None else self._sink(frame, who, target, "none")
        _, rows, batches = self._run(writer)
        if rows != FLOOR_BATCHES + _FLOOR_WARM or len(batches) < FLOOR_BATCHES:
            raise JobFailed(f"{rows} rows came in {len(batches)} batches, which is not one record each")
        return statistics.median(batches[_FLOOR_WARM:])

    @staticmethod
    def floor_records() -> int:
        return FLOOR_BATCHES + _FLOOR_WARM

    def _stream_of(self, who: str, topic: str, **options: str) -> DataFrame:
        reader = self._spark.readStream.format(_format(who)).options(**self._broker, subscribe=topic)
        return reader.options(startingOffsets="earliest", **options).load()

    def _sink(self, frame: DataFrame, who: str, topic: str, codec: str) -> DataStreamWriter:
        options = {**self._broker, "topic": topic, "kafka.compression.type": codec, **_delivery(who)}
        return frame.select("value").writeStream.format(_format(who)).options(**options)

    def _run(self, writer: DataStreamWriter) -> tuple[float, int, list[float]]:
        """Seconds from start to end, the rows that went in, and how long each batch with rows took."""
        self._serial += 1
        checkpoint = self._scratch / f"checkpoint-{self._serial}"
        began = time.perf_counter()
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        try:
            if not query.awaitTermination(TIMEOUT_S):
                raise JobFailed(f"not done after {TIMEOUT_S} s")
        finally:
            query.stop()
        seconds = time.perf_counter() - began
        filled = [progress for progress in query.recentProgress if progress.numInputRows]
        rows = sum(progress.numInputRows for progress in filled)
        return seconds, rows, [float(progress.durationMs["triggerExecution"]) for progress in filled]


def _format(who: str) -> str:
    return "kafka" if who == JVM else "braidlog"


def _delivery(who: str) -> Mapping[str, str]:
    # Exactly once is what braidlog's sink does unless it is told otherwise.
    return {"delivery": "at-least-once"} if who == LEAST else {}
