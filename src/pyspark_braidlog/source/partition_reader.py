"""The task's side of reading: one range of offsets as the Arrow batches that Spark takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from braidlog.client.arrow.reading import NoPartitionError, RangeRead, RangeReader, TopicReplacedError
from braidlog.client.errors import NoOffsetError, RequestTimeout
from braidlog.core.errors import BraidlogError, UserError
from braidlog.core.ids import parse_id
from braidlog.core.protocol_errors import UnknownTopicOrPartitionError
from pyspark_braidlog.client_pool import ClientPool
from pyspark_braidlog.source.data_loss import LogRange, ReadLoss, find_log_range, loss_of
from pyspark_braidlog.source.offset_range import OffsetRange
from pyspark_braidlog.source.schema import check_schema
from pyspark_braidlog.worker_process import freeze_imports

# Spark's name -> the name in our own tables.
_OUR_NAMES: Final = {"timestampType": "timestamp_type"}
# Tiny records come by the million; for each batch the JVM makes room at once.
_MOST_ROWS: Final = 131_072
# A batch has about so many bytes of records: what the JVM takes at once, and a worker holds a few of.
_BATCH_BYTES: Final = 8 * 1024 * 1024
# After these it is worth looking whether the log still has what was planned.
_DOUBTFUL: Final = (NoOffsetError, TopicReplacedError, NoPartitionError, UnknownTopicOrPartitionError, RequestTimeout)

READERS: Final[ClientPool[RangeReader]] = ClientPool(RangeReader)

FindLogRange = Callable[[Mapping[str, str], OffsetRange], LogRange | None]


class RowConverter:
    """Turns tables of records into rows of a Spark schema."""

    def __init__(self, schema: StructType) -> None:
        check_schema(schema)
        # Spark refuses a batch whose schema is not exactly this.
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self.columns = [_OUR_NAMES.get(name, name) for name in schema.names]

    def of(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The same rows, in pieces; `batch` has `columns`, times in microseconds, bytes as `binary`."""
        arrays = [
            _headers(array, field.type) if field.name == "headers" else array
            for array, field in zip(batch.columns, self.schema, strict=True)
        ]
        whole = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        for first in range(0, whole.num_rows, _MOST_ROWS):
            yield whole.slice(first, _MOST_ROWS)


def _headers(array: pa.ListArray, kind: pa.DataType) -> pa.Array:
    """Null where a record has none, as the connector has it; other parts may be null for Spark that never are."""
    count = len(array)
    pairs = array.values
    if not len(pairs):
        return pa.nulls(count, kind)
    pairs = pa.StructArray.from_arrays(pairs.flatten(), fields=list(kind.value_type))
    has_some = pc.not_equal(pc.list_value_length(array), 0)
    nulls = count - pc.sum(has_some).as_py()
    return pa.Array.from_buffers(
        kind, count, [has_some.buffers()[1] if nulls else None, array.buffers()[1]], nulls, 0, [pairs]
    )


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
    *,
    pool: ClientPool[RangeReader] = READERS,
    find_log_range: FindLogRange = find_log_range,
) -> Iterator[pa.RecordBatch]:
    """The records of the range, with the columns of the schema, in order.

    DataLoss when the log has not all of the range any more, unless the options say to go on with what is there.
    """
    rows = RowConverter(schema)
    position = work.start
    while position < work.end:
        progress = _Progress(position)
        try:
            yield from _read(options, rows, work, progress, pool)
            break
        except _DOUBTFUL as problem:
            position = progress.position
            loss = _loss(options, work, position, problem, find_log_range)
            if options.fail_on_data_loss:
                raise loss.refusal() from problem
            position = loss.resume
            # Of a Python worker this goes to the log of its executor.
            print(f"braidlog: {loss.notice()}", file=sys.stderr, flush=True)
    freeze_imports()


class _Progress:
    def __init__(self, position: int) -> None:
        self.position = position


def _read(
    options: RangeOptions, rows: RowConverter, work: OffsetRange, progress: _Progress, pool: ClientPool[RangeReader]
) -> Iterator[pa.RecordBatch]:
    with pool.use(options.client) as reader, closing(_begun(reader, rows, work, progress.position)) as read:
        try:
            for batch in read:
                yield from rows.of(batch)
        finally:
            progress.position = read.position


def _begun(reader: RangeReader, rows: RowConverter, work: OffsetRange, position: int) -> RangeRead:
    return reader.read(
        work.topic,
        work.partition,
        position,
        work.end,
        columns=rows.columns,
        max_bytes=_BATCH_BYTES,
        topic_id=parse_id(work.topic_id) if work.topic_id else None,
    )


def _loss(
    options: RangeOptions, work: OffsetRange, position: int, problem: Exception, find_log_range: FindLogRange
) -> ReadLoss:
    """What became of the rest of the range; raises what is no loss."""
    try:
        loss = loss_of(work, position, find_log_range(options.client, work))
    except BraidlogError:
        # The cluster does not answer: what reading failed with says it best.
        loss = None
    if loss is not None:
        return loss
    if isinstance(problem, RequestTimeout):
        raise UserError(
            f"{problem}; see whether the partition has a leader, and raise kafka.default.api.timeout.ms if it takes "
            "that long"
        ) from problem
    raise problem
