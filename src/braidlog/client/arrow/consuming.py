"""What a consumer fetched, as Arrow tables: one batch for each fetch of a partition, decoded in the caller's thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from braidlog.client.arguments import Many
from braidlog.client.arrow.decoding import to_record_batch
from braidlog.client.arrow.shape import BytesLayout, TableShape, TimeUnit
from braidlog.client.consumer.fetch.completed_fetch import CompletedFetch
from braidlog.core.errors import UserError

if TYPE_CHECKING:
    from braidlog.client.consumer.consumer import Consumer
    from braidlog.client.consumer.fetch.fetch_buffer import FetchBuffer

# A table has at most about so many bytes of records, so that its columns stay well below Arrow's 2 GiB.
_TABLE_BYTES: Final = 256 * 1024 * 1024
_ALL: Final = 1 << 62


def poll_arrow(
    consumer: Consumer,
    timeout: float = 0.0,
    max_records: int | None = None,
    columns: Many[str] | None = None,
    *,
    timestamp_unit: TimeUnit = "ms",
    bytes_layout: BytesLayout = "binary",
) -> pa.Table:
    """What is there, waiting so long for the first of it; a table without rows when nothing came.

    Positions move past what is returned, and commits follow them, as with `poll`. The table has a chunk for each
    completed fetch, which is of one partition and in order; without `max_records` it has all that is buffered.
    """
    if max_records is not None and max_records < 1:
        raise UserError(f"max_records={max_records}: ask for at least one")
    shape = TableShape(columns, timestamp_unit=timestamp_unit, bytes_layout=bytes_layout)
    reader = _TableReader(shape, _ALL if max_records is None else max_records)
    batches = consumer._poll_fetches(reader.take, timeout)
    return pa.Table.from_batches(batches or [], schema=shape.schema)


class _TableReader:
    def __init__(self, shape: TableShape, most: int) -> None:
        self._shape = shape
        self._most = most

    def take(self, fetch_buffer: FetchBuffer) -> list[Any] | None:
        """The batches of everything that is buffered; none when that is nothing."""
        batches: list[Any] = []
        left = self._most
        room = _TABLE_BYTES
        while left > 0 and room > 0:
            fetched = fetch_buffer.take_fetch()
            if fetched is None:
                break
            try:
                batch, size = self._read(fetch_buffer, fetched, left)
            except Exception:
                # What came before it is returned first, since positions have moved past that; the next poll raises.
                if batches:
                    break
                raise
            room -= max(size, fetched.size)
            if batch is not None:
                batches.append(batch)
                left -= batch.num_rows
        return batches or None

    def _read(self, fetch_buffer: FetchBuffer, fetched: CompletedFetch, most: int) -> tuple[pa.RecordBatch | None, int]:
        """What there is to show of it, and the bytes that its batches hold uncompressed."""
        state = fetched.state
        reader = fetched.column_reader()
        columns = self._shape.new_columns()
        count = fetched.read_columns(reader, columns, most)
        batch = to_record_batch(columns, self._shape, state.topic, int(state.partition)) if count else None
        epoch = columns.leader_epoch_runs[-1][0] if count else -1
        fetch_buffer.advance_fetch(fetched, reader.position, epoch, reader.is_done, count)
        return batch, int(columns.size)
