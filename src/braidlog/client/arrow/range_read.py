"""The reading of one range: fetched ahead, decoded, handed out batch by batch."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from concurrent.futures import Future
from typing import NamedTuple, Protocol

import pyarrow as pa

from braidlog.client.arrow.decoding import to_record_batch
from braidlog.client.arrow.shape import TableShape
from braidlog.client.errors import PoisonRecordError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.wire.records.columns_slice import SliceReader


class FetchedRange(NamedTuple):
    """Whole batches from `offset` on, and the offset to fetch on at."""

    records: ByteSlice
    offset: int
    next_offset: int
    aborted: list[tuple[int, int]]


class RangeSpec(NamedTuple):
    """What is read, and how."""

    where: TopicPartition
    start: int
    end: int
    # The topic must have it, where one is given and the cluster has ids.
    topic_id: bytes | None
    shape: TableShape
    max_records: int
    max_bytes: int
    checks_crcs: bool


class RangeFetcher(Protocol):
    def begin(self, spec: RangeSpec, offset: int) -> Future[FetchedRange]:
        """Start to fetch from the offset on."""
        ...


class RangeRead(Iterator[pa.RecordBatch]):
    """The batches of one range; `position` is the offset behind what was returned."""

    def __init__(self, reader: RangeFetcher, spec: RangeSpec) -> None:
        self.position = spec.start
        self._reader = reader
        self._spec = spec
        self._batches = self._read()

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def close(self) -> None:
        """Let go of what was fetched ahead."""
        self._batches.close()

    def _read(self) -> Generator[pa.RecordBatch]:
        spec = self._spec
        ahead: Future[FetchedRange] | None = None
        try:
            while self.position < spec.end:
                ahead = ahead or self._reader.begin(spec, self.position)
                fetched = ahead.result()
                ahead = None
                if self.position < fetched.next_offset < spec.end:
                    ahead = self._reader.begin(spec, fetched.next_offset)
                before = self.position
                yield from self._batches_of(fetched)
                self.position = max(self.position, fetched.next_offset)
                if self.position == before:
                    raise _nothing_whole(spec.where, before, fetched.records.size)
        finally:
            if ahead is not None:
                ahead.cancel()

    def _batches_of(self, fetched: FetchedRange) -> Generator[pa.RecordBatch]:
        spec = self._spec
        where = spec.where
        records = fetched.records
        reader = SliceReader(
            records.buffer,
            records.start,
            records.end,
            self.position,
            aborted=fetched.aborted,
            until=spec.end,
            full=spec.max_bytes,
        )
        while not reader.is_done:
            columns = spec.shape.new_columns()
            try:
                reader.read_into(columns, spec.max_records, check=spec.checks_crcs)
            except ProtocolError as problem:
                offset = reader.position
                resume_at = max(reader.resume_at, offset + 1)
                raise PoisonRecordError(
                    f"{where} cannot be read at offset {offset}: {problem}; read on at offset {resume_at}, "
                    "or have the partition repaired",
                    where,
                    offset,
                    resume_at,
                ) from problem
            self.position = reader.position
            if columns.count:
                yield to_record_batch(columns, spec.shape, where.topic, where.partition)


def _nothing_whole(where: TopicPartition, offset: int, size: int) -> PoisonRecordError:
    return PoisonRecordError(
        f"{where} at offset {offset}: what is there is no record batch, or one larger than the {size} bytes that were "
        "asked for (raise fetch.max.bytes)",
        where,
        offset,
        offset + 1,
    )
