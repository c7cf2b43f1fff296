"""Deaths at chosen moments of a write: a data source like "braidlog", whose tasks and driver die where a plan says.

A plan is a file of JSON: by point, by how many passages of it there were before, who dies there. Passages are counted
in files beside the plan, so that all processes of all lives count together and every death happens once.

    {"after-commit": {"2": "worker"}, "driver-commit": {"1": "driver"}}

    first-rows       the first rows are written, the transaction is open, more may come
    before-commit    all rows and the marker are written
    after-commit     the transaction is committed, Spark does not know yet
    driver-commit    every task has succeeded, Spark's commit log does not know yet

"worker" is the Python process of the task; "driver" the JVM with all that is in it (its Python lives on for a moment,
as an executor cut off from its driver would); "both" is both.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from braidlog import Producer
from pyspark_braidlog import DefaultSource
from pyspark_braidlog.sink import clients
from pyspark_braidlog.sink.writers import StreamWriter, new_stream_writer

PLAN = "BRAIDLOG_TEST_DEATHS"
FIRST_ROWS, BEFORE_COMMIT, AFTER_COMMIT, DRIVER_COMMIT = "first-rows", "before-commit", "after-commit", "driver-commit"
TASK_POINTS = (FIRST_ROWS, BEFORE_COMMIT, AFTER_COMMIT)
WORKER, DRIVER, BOTH = "worker", "driver", "both"


def passed(point: str) -> int:
    """So many passages of the point there were before, in any process."""
    file = os.open(_directory() / f"{point}.passed", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(file, b".")
        return os.fstat(file).st_size - 1
    finally:
        os.close(file)


def maybe_die(point: str) -> None:
    plan = json.loads(Path(os.environ[PLAN]).read_text())
    victim = plan.get(point, {}).get(str(passed(point)))
    if victim is None:
        return
    with open(_directory() / "deaths", "a") as deaths:
        deaths.write(f"{point} {victim}\n")
    if victim in (DRIVER, BOTH):
        # What Spark's daemon of workers sends to its children when the JVM is gone; an executor elsewhere gets nothing.
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.kill(_jvm(), signal.SIGKILL)
    if victim in (WORKER, BOTH):
        os.kill(os.getpid(), signal.SIGKILL)


def _directory() -> Path:
    return Path(os.environ[PLAN]).parent


def _jvm() -> int:
    """The ancestor that is Java."""
    process = os.getppid()
    while process > 1:
        status = Path(f"/proc/{process}/status").read_text()
        fields = dict(line.split(":\t", 1) for line in status.splitlines() if ":\t" in line)
        if fields["Name"] == "java":
            return process
        process = int(fields["PPid"])
    raise AssertionError("no JVM among the ancestors of this process")


class DyingProducer(Producer):
    def send_arrow(self, data: Any, topic: str | None = None, **options: Any) -> Any:
        delivery = super().send_arrow(data, topic, **options)
        self.flush()
        maybe_die(FIRST_ROWS)
        return delivery

    def commit_transaction(self, timeout: float | None = None) -> None:
        maybe_die(BEFORE_COMMIT)
        super().commit_transaction(timeout)
        maybe_die(AFTER_COMMIT)


class DyingWriter(DataSourceStreamArrowWriter):
    def __init__(self, writer: StreamWriter) -> None:
        self._writer = writer

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        clients.Producer = DyingProducer  # type: ignore[misc]
        return self._writer.write(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writer.commit(messages, batchId)
        maybe_die(DRIVER_COMMIT)


class DyingSource(DefaultSource):
    @classmethod
    def name(cls) -> str:
        return "braidlog_dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        writer = new_stream_writer(self.options, schema, overwrite)
        assert isinstance(writer, StreamWriter)
        return DyingWriter(writer)
