"""A fetched slice of a partition to columns: what a consumer may see of it (hot: compiled by mypyc)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from librt.strings import read_i32_be

from braidlog.core.protocol_errors import CorruptMessageError, ProtocolError
from braidlog.wire.records.batch import LENGTH_AT, LOG_OVERHEAD, MESSAGE_V0_SIZE, BatchHeader, read_header
from braidlog.wire.records.columns import RecordColumns
from braidlog.wire.records.columns_parsing import parse_batch
from braidlog.wire.records.compression import DEFAULT_LIMIT
from braidlog.wire.records.control_records import ABORT, control_type
from braidlog.wire.records.reading import read_batch
from braidlog.wire.records.varint import INT64_MAX

# Columns with so many bytes of records take no further batch: what a few megabytes unfold to may be beyond 2 GiB.
FULL: Final = 256 * 1024 * 1024


class SliceReader:
    """One fetched slice of a partition, read from `position` on, up to (not including) `until`.

    Control batches are never shown. `aborted` are the (producer id, first offset) of the transactions that were taken
    back, as a fetch response for read_committed lists them; without it everything is shown.
    `position` moves as records are read: it is the offset at which to fetch on, past markers and compacted records too.
    """

    __slots__ = (
        "_aborting",
        "_at",
        "_buffer",
        "_coming",
        "_end",
        "_full",
        "_limit",
        "_until",
        "is_done",
        "position",
        "resume_at",
    )

    def __init__(
        self,
        buffer: bytes,
        start: int,
        end: int,
        position: int,
        *,
        aborted: Iterable[tuple[int, int]] = (),
        until: int = INT64_MAX,
        limit: int = DEFAULT_LIMIT,
        full: int = FULL,
    ) -> None:
        self._buffer = buffer
        self._at = start
        self._end = min(end, len(buffer))
        self.position = position
        self._until = until
        self._limit = limit
        self._full = full
        # Latest first, so that the next to begin is popped off the end.
        self._coming = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._aborting: set[int] = set()
        # No whole batch is left that could hold something to show.
        self.is_done = False
        # The offset behind the batch that was begun last: where to go on when that one is broken; -1: not known.
        self.resume_at = -1

    def read_into(self, columns: RecordColumns, most: int = INT64_MAX, *, check: bool = True) -> int:
        """Add up to `most` records, and of compressed ones no more than Arrow has room for; returns how many.

        A batch that cannot be read raises (CorruptMessageError, InvalidRecordError) only when nothing was read
        before it in this call: what is whole before the damage is handed out first, and the next call raises.
        """
        before = int(columns.count)
        while not self.is_done and int(columns.count) - before < most:
            if self.position >= self._until:
                self.is_done = True
                break
            if columns.count > 0 and columns.size >= self._full:
                break
            mark = columns.mark()
            try:
                self._read_batch_into(columns, most - (int(columns.count) - before), check)
            except ProtocolError:
                columns.rewind(mark)
                if int(columns.count) > before:
                    break
                raise
        return int(columns.count) - before

    def _read_batch_into(self, columns: RecordColumns, most: int, check: bool) -> None:
        """Read the batch that is next; moves on past it only when all its records were taken."""
        buffer = self._buffer
        at = self._at
        size = self._size_of_next()
        if size == 0:
            self.is_done = True
            return
        self.resume_at = -1
        header = read_header(buffer, at, self._end)
        self.resume_at = header.next_offset
        # A compressed message of an old format is known by the offset of its last record, not of its first.
        if header.base_offset >= self._until and header.count >= 0:
            self.position = self._until
            self.is_done = True
            return
        while self._coming and self._coming[-1][0] <= header.last_offset:
            self._aborting.add(self._coming.pop()[1])
        if header.is_control:
            self._end_transaction(header, check)
        elif header.last_offset >= self.position and not (
            header.is_transactional and header.producer_id in self._aborting
        ):
            taken = parse_batch(buffer, header, columns, self.position, self._until, most, check, self._limit)
            if taken >= 0:
                # Stopped by `most`: the next call goes on inside this batch.
                self.position = taken
                return
        self.position = min(max(self.position, header.next_offset), self._until)
        self._at = at + size

    def _size_of_next(self) -> int:
        """Bytes of the next batch, 0 when no whole one is left."""
        left = self._end - self._at
        if left < LOG_OVERHEAD:
            return 0
        size = int(read_i32_be(self._buffer, self._at + LENGTH_AT)) + LOG_OVERHEAD
        if size < MESSAGE_V0_SIZE:
            raise CorruptMessageError(f"a record batch of {size} bytes at position {self._at} is impossibly small")
        return size if size <= left else 0

    def _end_transaction(self, header: BatchHeader, check: bool) -> None:
        for marker in read_batch(self._buffer, header, check_crc=check, limit=self._limit):
            if control_type(marker) == ABORT:
                self._aborting.discard(header.producer_id)
