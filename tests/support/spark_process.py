"""A Spark session in a process of its own, for tests that need other jars or another master than everybody's.

There is one SparkContext a process, and its jars and master are fixed when it starts. The process takes calls by name
over a socket and answers with plain values, so that a test compares rows, not DataFrames. The same calls serve the two
formats, "braidlog" and "kafka".
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import Any, NamedTuple

START_TIMEOUT_S = 240.0
CALL_TIMEOUT_S = 240.0

Options = Mapping[str, str]


class Record(NamedTuple):
    """All columns of a row as read; `timestamp` is in microseconds, `headers` None where they were not asked for."""

    key: bytes | None
    value: bytes | None
    topic: str
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    headers: tuple[tuple[str, bytes | None], ...] | None


class SparkProblem(Exception):
    """What a call in the process raised, as text."""


class SparkProcess:
    """The test's end."""

    def __init__(self, connection: Connection, log: Path) -> None:
        self._connection = connection
        self._log = log

    def read(self, source: str, **options: str) -> list[Record]:
        """A batch read, in the order of topic, partition, offset."""
        return [Record(*row) for row in self._call("read", source=source, options=options)]

    def count(self, source: str, **options: str) -> int:
        return int(self._call("count", source=source, options=options))

    def columns(self, source: str, **options: str) -> list[tuple[str, str, bool]]:
        return [tuple(column) for column in self._call("columns", source=source, options=options)]

    def partitions(self, source: str, **options: str) -> int:
        return int(self._call("partitions", source=source, options=options))

    def write(self, sink: str, rows: Sequence[Sequence[Any]], schema: str, **options: str) -> None:
        self._call("write", sink=sink, rows=rows, schema=schema, options=options)

    def stream(
        self,
        source: Options,
        sink: Options,
        checkpoint: Path,
        columns: Sequence[str] = ("key", "value", "headers"),
        trigger: Mapping[str, Any] | None = None,
        batches: int | None = None,
    ) -> list[int]:
        """Run a query from one format to the other and return the rows of each batch that had any.

        The format is the option "format"; "foreachBatch" writes each batch with `topic_sink`. Without a trigger it is
        AvailableNow; `batches` stops a query that runs by a clock after so many batches with rows.
        """
        answer = self._call(
            "stream",
            source=dict(source),
            sink=dict(sink),
            checkpoint=str(checkpoint),
            columns=list(columns),
            trigger=dict(trigger or {"availableNow": True}),
            batches=batches,
        )
        return [int(rows) for rows in answer]

    def answer(self, what: str, timeout_s: float) -> Any:
        if not self._connection.poll(timeout_s):
            raise SparkProblem(f"{what}: no answer within {timeout_s:.0f} s\n{self._last_lines()}")
        try:
            is_good, answer = self._connection.recv()
        except EOFError:
            raise SparkProblem(f"{what}: the Spark process ended\n{self._last_lines()}") from None
        if not is_good:
            raise SparkProblem(answer)
        return answer

    def _call(self, name: str, **arguments: Any) -> Any:
        self._connection.send((name, arguments))
        return self.answer(name, CALL_TIMEOUT_S)

    def _last_lines(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]


@contextmanager
def spark_process(conf: Mapping[str, str], environment: Mapping[str, str] | None = None) -> Iterator[SparkProcess]:
    """`conf` is the session's beyond what all tests have; "spark.master" is local[2] unless it says otherwise.

    With "spark.remote" it is a client of that Spark Connect server.
    """
    here, there = Pipe()
    with tempfile.TemporaryDirectory(prefix="spark-process-") as scratch, here:
        log = Path(scratch) / "log"
        own = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        env = {**os.environ, **own, **(environment or {})}
        settings = {"spark.sql.warehouse.dir": f"{scratch}/warehouse", "spark.local.dir": scratch, **conf}
        arguments = [f"{key}={value}" for key, value in settings.items()]
        with log.open("wb") as output, there:
            process = subprocess.Popen(
                [sys.executable, __file__, str(there.fileno()), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env,
                pass_fds=[there.fileno()],
            )
        try:
            spark = SparkProcess(here, log)
            spark.answer("the start", START_TIMEOUT_S)
            yield spark
            here.close()
            process.wait(timeout=30)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


# The process's end


class _Calls:
    def __init__(self, conf: Mapping[str, str]) -> None:
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.appName("braidlog tests")
        settings = {
            "spark.master": "local[2]",
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.log.level": "ERROR",
            **conf,
        }
        if "spark.remote" in conf:
            # All else was decided when the server was started.
            self.spark = builder.remote(conf["spark.remote"]).getOrCreate()
            return
        for key, value in settings.items():
            builder = builder.config(key, value)
        self.spark = builder.getOrCreate()

    def _load(self, source: str, options: Options) -> Any:
        return self.spark.read.format(source).options(**options).load()

    def read(self, source: str, options: Options) -> list[tuple[Any, ...]]:
        from pyspark.sql import functions as F

        frame = self._load(source, options)
        names = ["key", "value", "topic", "partition", "offset", "timestampType"]
        columns = [F.col(name) for name in names]
        columns.append(F.unix_micros("timestamp"))
        columns.append(F.col("headers") if "headers" in frame.columns else F.lit(None))
        rows = frame.select(*columns).orderBy("topic", "partition", "offset").collect()
        return [_plain(tuple(row)) for row in rows]

    def count(self, source: str, options: Options) -> int:
        return int(self._load(source, options).count())

    def columns(self, source: str, options: Options) -> list[tuple[str, str, bool]]:
        fields = self._load(source, options).schema.fields
        return [(field.name, field.dataType.simpleString(), field.nullable) for field in fields]

    def partitions(self, source: str, options: Options) -> int:
        return int(self._load(source, options).rdd.getNumPartitions())

    def write(self, sink: str, rows: Sequence[Sequence[Any]], schema: str, options: Options) -> None:
        frame = self.spark.createDataFrame([tuple(row) for row in rows], schema)
        frame.write.format(sink).options(**options).mode("append").save()

    def stream(
        self,
        source: dict[str, str],
        sink: dict[str, str],
        checkpoint: str,
        columns: list[str],
        trigger: dict[str, Any],
        batches: int | None,
    ) -> list[int]:
        frame = self.spark.readStream.format(source.pop("format")).options(**source).load().selectExpr(*columns)
        if sink["format"] == "foreachBatch":
            from pyspark_braidlog.pipeline import topic_sink

            writer = frame.writeStream.outputMode("update").foreachBatch(
                topic_sink({name: value for name, value in sink.items() if name != "format"})
            )
        else:
            writer = frame.writeStream.format(sink.pop("format")).options(**sink)
        query = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
        try:
            if batches is None:
                query.awaitTermination()
            else:
                while len(_batch_sizes(query)) < batches and query.isActive:
                    query.awaitTermination(0.2)
                query.processAllAvailable()
            return _batch_sizes(query)
        finally:
            query.stop()


def _batch_sizes(query: Any) -> list[int]:
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def _plain(row: tuple[Any, ...]) -> tuple[Any, ...]:
    key, value, topic, partition, offset, timestamp_type, timestamp, headers = row
    if headers is not None:
        headers = tuple((header.key, _bytes(header.value)) for header in headers)
    return _bytes(key), _bytes(value), topic, partition, offset, timestamp, timestamp_type, headers


def _bytes(value: bytearray | None) -> bytes | None:
    return None if value is None else bytes(value)


def _serve(handle: int, conf: Mapping[str, str]) -> None:
    # What Spark starts must not hold the pipe open after this process.
    os.set_inheritable(handle, False)
    with Connection(handle) as connection:
        calls = _Calls(conf)
        connection.send((True, None))
        try:
            while True:
                try:
                    name, arguments = connection.recv()
                except EOFError:
                    return
                try:
                    connection.send((True, getattr(calls, name)(**arguments)))
                except Exception as problem:
                    connection.send((False, f"{problem}\n{traceback.format_exc()}"))
        finally:
            calls.spark.stop()


if __name__ == "__main__":
    _serve(int(sys.argv[1]), dict(argument.split("=", 1) for argument in sys.argv[2:]))
