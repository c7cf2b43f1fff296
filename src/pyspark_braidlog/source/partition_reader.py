"""The task's side of reading: one range of offsets as the Arrow batches that Spark takes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql.types import StructType

from braidlog.client.arrow.reading import NoPartitionError, RangeRead, RangeReader, TopicReplacedError
from braidlog.client.errors import NoOffsetError, RequestTimeout
from braidlog.core.errors import BraidlogError, UserError
from braidlog.core.ids import parse_id
from braidlog.core.protocol_errors import UnknownTopicOrPartitionError
from pyspark_braidlog.client_pool import ClientPool
from pyspark_braidlog.source.offset_range import OffsetRange
from pyspark_braidlog.source.read_loss import LogRange, ReadLoss, find_log_range, loss_of
from pyspark_braidlog.source.row_converter import RowConverter
from pyspark_braidlog.worker_process import freeze_imports

# A batch has about so many bytes of records: what the JVM takes at once, and a worker holds a few of.
_BATCH_BYTES: Final = 8 * 1024 * 1024
# After these it is worth looking whether the log still has what was planned.
_DOUBTFUL: Final = (NoOffsetError, TopicReplacedError, NoPartitionError, UnknownTopicOrPartitionError, RequestTimeout)

READERS: Final[ClientPool[RangeReader]] = ClientPool(RangeReader)

FindLogRange = Callable[[Mapping[str, str], OffsetRange], LogRange | None]


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
        # Nobody can be asked now: what reading failed with says it best.
        loss = None
    if loss is not None:
        return loss
    if isinstance(problem, RequestTimeout):
        raise UserError(
            f"{problem}; see whether the partition has a leader, and raise kafka.default.api.timeout.ms if it takes "
            "that long"
        ) from problem
    raise problem
