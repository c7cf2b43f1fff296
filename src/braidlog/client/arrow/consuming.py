"""What a consumer fetched, as Arrow tables: one batch for every fetched slice, decoded in the caller's thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

import pyarrow as pa

from braidlog.client.arguments import Many
from braidlog.client.arrow.decoding import to_record_batch
from braidlog.client.arrow.shape import BytesLayout, TableShape, TimeUnit
from braidlog.client.consumer.fetch.completed_fetch import CompletedFetch
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.wire.records.columns_slice import SliceReader

T = TypeVar("T")

# A table has at most about so many bytes of records, so that its columns stay well below Arrow's 2 GiB.
_TABLE_BYTES: Final = 256 * 1024 * 1024
_ALL: Final = 1 << 62


class CompletedFetches(Protocol):
    """What a consumer fetched and did not return yet."""

    def take_fetch(self) -> CompletedFetch | None:
        """The one to read next; it stays until `advance_fetch` says how far it was read."""
        ...

    def advance_fetch(
        self, fetched: CompletedFetch, position: int, leader_epoch: int, is_done: bool, count: int
    ) -> None: ...


class PollingConsumer(Protocol):
    """What poll_arrow needs of a Consumer."""

    @property
    def _fetch_buffer(self) -> CompletedFetches: ...

    def _poll_with(self, take: Callable[[], T | None], timeout: float) -> T | None:
        """All that `poll` does around taking records: the group, commits, errors, waiting."""
        ...


def poll_arrow(
    consumer: PollingConsumer,
    timeout: float = 0.0,
    max_records: int | None = None,
    columns: Many[str] | None = None,
    *,
    timestamp_unit: TimeUnit = "ms",
    bytes_layout: BytesLayout = "binary",
) -> pa.Table:
    """What is there, waiting so long for the first of it; a table without rows when nothing came.

    Positions move past what is returned, and commits follow them, as with `poll`. The table has a chunk for each
    fetched slice, which is of one partition and in order; without `max_records` it has all that is buffered.
    """
    if max_records is not None and max_records < 1:
        raise UserError(f"max_records={max_records}: ask for at least one")
    shape = TableShape(columns, timestamp_unit=timestamp_unit, bytes_layout=bytes_layout)
    taking = _TableReader(consumer._fetch_buffer, shape, _ALL if max_records is None else max_records)
    batches = consumer._poll_with(taking.take, timeout)
    return pa.Table.from_batches(batches or [], schema=shape.schema)


class _TableReader:
    def __init__(self, fetch_buffer: CompletedFetches, shape: TableShape, most: int) -> None:
        self._fetch_buffer = fetch_buffer
        self._shape = shape
        self._most = most

    def take(self) -> list[Any] | None:
        """The batches of everything that is buffered; none when that is nothing."""
        batches: list[Any] = []
        left = self._most
        room = _TABLE_BYTES
        while left > 0 and room > 0:
            fetched = self._fetch_buffer.take_fetch()
            if fetched is None:
                break
            try:
                batch, size = self._read(fetched, left)
            except Exception:
                # What came before it is returned first, since positions have moved past that; the next poll tells.
                if batches:
                    break
                raise
            room -= max(size, fetched.size)
            if batch is not None:
                batches.append(batch)
                left -= batch.num_rows
        return batches or None

    def _read(self, fetched: CompletedFetch, most: int) -> tuple[pa.RecordBatch | None, int]:
        """What there is to show of it, and the bytes that its batches hold uncompressed."""
        if fetched.problem is not None:
            raise fetched.take_problem()
        state = fetched.state
        # From its start, also when some of it was read: which transactions were aborted is found on the way.
        reader = SliceReader(
            fetched.data, fetched.start, int(fetched.end), int(fetched.position), aborted=fetched.aborted
        )
        columns = self._shape.new_columns()
        try:
            count = reader.read_into(columns, most, check=fetched.check_crcs)
        except ProtocolError as problem:
            raise fetched.poisoned(problem, reader.position, reader.resume_at) from problem
        batch = to_record_batch(columns, self._shape, state.topic, int(state.partition)) if count else None
        epoch = columns.leader_epoch_runs[-1][0] if count else -1
        self._fetch_buffer.advance_fetch(fetched, reader.position, epoch, reader.is_done, count)
        return batch, int(columns.size)
