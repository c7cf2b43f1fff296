"""A task's side of both writers, and what the driver learns from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from pyspark_braidlog.sink.clients import PRODUCERS, committed_offsets, transactional_producer
from pyspark_braidlog.sink.columns import Columns
from pyspark_braidlog.sink.end_of_input import check_complete, task_input
from pyspark_braidlog.sink.options import Delivery, Recomputed, WriteOptions
from pyspark_braidlog.sink.row_writers import ExactlyOnceWriter, write_at_least_once
from pyspark_braidlog.sink.target_topics import TARGET_TOPICS
from pyspark_braidlog.sink.task_identity import TaskIdentity
from pyspark_braidlog.worker_process import freeze_imports


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
