"""A task's side of both writers, and what the driver learns from it.

Before a commit it checks that the task has received all of its rows, and that its executor did not die half-way. Spark
sends a task's rows over a socket as an Arrow stream. Where the executor dies, or the task is killed, the socket is
closed; and a stream that just ends reads like one that is complete. Only after a complete one Spark says so by four
more bytes, which its worker reads once the task is done. They have to be there before the commit: half a batch with its
marker could never be mended.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Protocol, cast

import pyarrow as pa
from pyspark.serializers import SpecialLengths
from pyspark.sql.datasource import WriterCommitMessage

from braidlog.core.errors import BraidlogError, UserError
from pyspark_braidlog.sink.clients import PRODUCERS, committed_offsets, transactional_producer
from pyspark_braidlog.sink.columns import Columns
from pyspark_braidlog.sink.options import Delivery, Recomputed, WriteOptions
from pyspark_braidlog.sink.row_writers import ExactlyOnceWriter, write_at_least_once
from pyspark_braidlog.sink.target_topics import TARGET_TOPICS
from pyspark_braidlog.sink.task_identity import TaskIdentity
from pyspark_braidlog.worker_process import freeze_imports, worker_input

_END: Final = SpecialLengths.END_OF_STREAM.to_bytes(4, "big", signed=True)


class TaskInput(Protocol):
    """A buffered reader of the executor's socket."""

    def peek(self, size: int = 0, /) -> bytes: ...


class IncompleteInput(BraidlogError):
    """The executor went away before it had sent all rows."""


def task_input() -> TaskInput:
    """The input of the worker that runs this task; call it within the task."""
    found = worker_input()
    if found is not None:
        return cast(TaskInput, found)
    raise UserError(
        "this PySpark runs its workers in a way that the sink does not know, so that it could not tell a complete "
        "batch from one that was cut: use PySpark 4.3, or set the option delivery to at-least-once"
    )


def check_complete(task: TaskInput) -> None:
    """After the last row, and before the commit."""
    # Waits for a byte at least; of what comes after complete rows none is different from the end's.
    seen = task.peek(len(_END))[: len(_END)]
    if seen != _END[: len(seen)] or not seen:
        raise IncompleteInput("the executor went away before it had sent all rows of this task; nothing is committed")


@dataclass(frozen=True)
class TaskCommitMessage(WriterCommitMessage):
    """The commit message that a task sends to the driver."""

    rows: int
    # None where it was at least once.
    task: TaskIdentity | None = None
    skipped: bool = False
    continues_run: bool = False


def write_task(options: WriteOptions, columns: Columns, batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
    written = _written(options, columns, batches)
    freeze_imports()
    return written


def _written(options: WriteOptions, columns: Columns, batches: Iterator[pa.RecordBatch]) -> TaskCommitMessage:
    batches = TARGET_TOPICS.checked(options, columns, batches)
    if options.delivery is Delivery.AT_LEAST_ONCE:
        with PRODUCERS.use(options.client) as producer:
            return TaskCommitMessage(write_at_least_once(producer, columns, batches))
    task = TaskIdentity.current()
    source = task_input()
    name = task.name(options.sink_name)
    with transactional_producer(options, name) as producer:
        once = ExactlyOnceWriter(
            producer,
            lambda group: committed_offsets(options, group),
            lambda: check_complete(source),
            task,
            name,
            columns,
            keep_recomputed=options.recomputed is Recomputed.KEEP,
        )
        written = once.write(batches)
    return TaskCommitMessage(written.rows.rows, task, written.skipped, written.continues_run)
