"""Writing a stream: `df.writeStream.format("braidlog")`, exactly once unless the option `delivery` says otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_braidlog.sink.columns import Columns
from pyspark_braidlog.sink.options import Delivery, WriteOptions
from pyspark_braidlog.sink.target_topics import TARGET_TOPICS
from pyspark_braidlog.sink.task_count import check_task_count
from pyspark_braidlog.sink.write_task import TaskCommitMessage, write_task
from pyspark_braidlog.worker_process import SentToWorkers, freeze_imports

if TYPE_CHECKING:
    import pyarrow as pa


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
