"""The task's side of reading: one range of offsets as the Arrow batches that Spark takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import pyarrow as pa
from pyspark.sql.datasource import Filter
from pyspark.sql.types import StructType

from pyspark_braidlog.source.arrow_rows import SparkRows
from pyspark_braidlog.source.model import OffsetRange
from pyspark_braidlog.source.reader_pool import POOL, ReaderPool


class RangeOptions(Protocol):
    """What reading needs of the options of a source."""

    @property
    def client(self) -> dict[str, str]:
        """Settings of a consumer."""
        ...

    @property
    def fail_on_data_loss(self) -> bool: ...


def read_range(
    options: RangeOptions,
    schema: StructType,
    work: OffsetRange,
    filters: Sequence[Filter] = (),
    *,
    pool: ReaderPool = POOL,
) -> Iterator[pa.RecordBatch]:
    """The records of the range, with the columns of the schema, in order.

    `filters` may leave rows out that Spark would leave out itself; it evaluates them again.
    """
    rows = SparkRows(schema)
    if work.size <= 0:
        return
    with pool.reader(options.client) as reader:
        for batch in reader.read(work.topic, work.partition, work.start, work.end, columns=rows.columns):
            yield rows.of(batch)
