"""The writers of `df.write` and `df.writeStream` with `format("braidlog")`: batches append, streams write once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from braidlog import TopicPartition
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core.errors import UserError
from pyspark_braidlog.client_settings import admin_settings
from pyspark_braidlog.sink.clients import ADMINS
from pyspark_braidlog.sink.columns import Columns
from pyspark_braidlog.sink.markers import newest
from pyspark_braidlog.sink.options import Delivery, Recomputed, WriteOptions
from pyspark_braidlog.sink.target_topics import TARGET_TOPICS
from pyspark_braidlog.sink.task_identity import names_begin
from pyspark_braidlog.sink.write_task import TaskCommitMessage, write_task
from pyspark_braidlog.worker_process import SentToWorkers, freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa

Markers = Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]


def check_task_count(
    options: WriteOptions,
    messages: Sequence[TaskCommitMessage | None],
    find: Callable[[WriteOptions, str], Markers] | None = None,
) -> None:
    """On the driver, after every task of a batch has succeeded."""
    if options.delivery is Delivery.AT_LEAST_ONCE or options.recomputed is Recomputed.KEEP:
        return
    written = [each for each in messages if each is not None and each.task is not None]
    # Only the first batch of a run can be one that an earlier run began; one task that wrote in this run before says
    # that it is not the first (others may never have had rows).
    if not written or any(each.continues_run for each in written):
        return
    task = written[0].task
    assert task is not None
    beginning = names_begin(task.query, options.sink_name)
    extra: list[int] = []
    for group, offsets in (find or _find)(options, beginning).items():
        number = group.removeprefix(beginning)
        if not number.isdigit() or int(number) < len(messages):
            continue
        found = newest(group, offsets, options.topic)
        if found is not None and found.marker.batch == task.batch and found.marker.written.rows > 0:
            extra.append(int(number))
    if extra:
        raise UserError(
            f"batch {task.batch} was written by {max(extra) + 1} or more tasks before the query was started again, and "
            f"by {len(messages)} now: the rows that task {', '.join(map(str, sorted(extra)))} wrote then are in the "
            "topic twice. Exactly once needs the same number of tasks again (cores, shuffle partitions, repartition). "
            "To go on nevertheless, set the option recomputed to keep for one run"
        )


def _find(options: WriteOptions, beginning: str) -> Markers:
    with ADMINS.use(admin_settings(options.client)) as admin:
        names = [each.group_id for each in admin.list_groups() if each.group_id.startswith(beginning)]
        # A marker that cannot be read may be the one that tells; after a restart the batch is looked at again.
        return admin.list_group_offsets(names, require_stable=True).raise_for_errors() if names else {}


def new_batch_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool, *, is_insert: bool = False
) -> DataSourceArrowWriter:
    """On the driver, before any task runs: refuses what cannot be written.

    `is_insert`: rows have the columns of a table, those that are not the writer's to fill among them.
    """
    if overwrite:
        raise UserError("mode overwrite is not possible: topics are only appended to; use mode append")
    chosen = WriteOptions.checked(options, Delivery.AT_LEAST_ONCE)
    if chosen.delivery is Delivery.EXACTLY_ONCE and not chosen.sink_name:
        # Or the second write of a function would be taken for the first one, run again.
        raise UserError(
            "a batch is written exactly once only within foreachBatch, and needs the option sinkName there: "
            "a name for this write that no other write of the same function has"
        )
    columns = Columns.of(schema, chosen.topic)
    TARGET_TOPICS.check(chosen)
    return BatchWriter(chosen, columns, is_insert)


class BatchWriter(SentToWorkers, DataSourceArrowWriter):
    def __init__(self, options: WriteOptions, columns: Columns, is_insert: bool) -> None:
        self._options = options
        self._columns = columns
        self._is_insert = is_insert

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._is_insert:
            iterator = map(_without_offsets, iterator)
        return write_task(self._options, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        check_task_count(self._options, cast(list[TaskCommitMessage | None], messages))


def _without_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    offsets = batch.column("offset")
    if offsets.null_count < len(offsets):
        raise UserError(
            "rows that are inserted have no offset yet: name the columns, as in INSERT INTO table (key, value) SELECT …"
        )
    return batch


def new_stream_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
    """On the driver, for every batch before its tasks run: refuses what cannot be written.

    `overwrite` comes with output mode complete: every batch appends the whole result, as the connector does.
    """
    chosen = WriteOptions.checked(options, Delivery.EXACTLY_ONCE)
    columns = Columns.of(schema, chosen.topic)
    TARGET_TOPICS.check(chosen)
    freeze_imports()
    return StreamWriter(chosen, columns)


class StreamWriter(SentToWorkers, DataSourceStreamArrowWriter):
    def __init__(self, options: WriteOptions, columns: Columns) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_task(self._options, self._columns, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        check_task_count(self._options, cast(list[TaskCommitMessage | None], messages))
