"""Which partition each row of a table goes to, chosen as the Java client chooses (hot: compiled by mypyc)."""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_le, write_i32_le
from mypy_extensions import i32, i64

from braidlog.core.protocol_errors import InvalidPartitionsError
from braidlog.wire.records.columns_building import BytesColumn
from braidlog.wire.records.key_hash import murmur2

_POSITIVE: Final = 0x7FFFFFFF
# What a record takes beside its key and value, about: lengths, deltas, attributes, header count.
_RECORD_OVERHEAD: Final = 8


class StickyRowPartitioner:
    """For rows without a key: one partition after the other, each for about `batch_size` bytes of records.

    So batches grow full, as with the Java client's sticky partitioner; with a size of 0 every row goes to the next one.
    """

    __slots__ = ("_at", "_batch_size", "_partitions", "_taken")

    def __init__(self, partitions: list[int], batch_size: int, first: int = 0) -> None:
        self._partitions = partitions
        self._batch_size: i64 = batch_size
        self._at: i64 = first % len(partitions)
        self._taken: i64 = 0

    def next(self, size: i64) -> int:
        """The partition for a row of `size` bytes."""
        partition = self._partitions[self._at]
        self._taken += size + _RECORD_OVERHEAD
        if self._taken >= self._batch_size:
            self._taken = 0
            self._at = (self._at + 1) % len(self._partitions)
        return partition


def partition_rows_by_key(
    keys: BytesColumn | None, values: BytesColumn | None, rows: int, partitions: int, keyless: StickyRowPartitioner
) -> list[bytes]:
    """The rows (int32 each, in order) of every partition, by the hash of their keys; `keyless` chooses for the rest."""
    spread = _RowsByPartition(partitions)
    total: i64 = partitions
    row: i64 = 0
    stop: i64 = rows
    while row < stop:
        length: i64 = -1
        if keys is not None:
            length = keys.length(row)
        if length >= 0 and keys is not None:
            spread.add(row, (murmur2(keys.data, keys.start(row), length) & _POSITIVE) % total)
        else:
            size: i64 = 0
            if values is not None:
                size = values.length(row)
            spread.add(row, keyless.next(size))
        row += 1
    return spread.finish()


def partition_rows_by_number(numbers: bytes, rows: int, partitions: int) -> list[bytes]:
    """The same by a column of partition numbers (int32 each)."""
    spread = _RowsByPartition(partitions)
    total: i64 = partitions
    row: i64 = 0
    stop: i64 = rows
    while row < stop:
        partition: i64 = i64(read_i32_le(numbers, 4 * row))
        if partition < 0 or partition >= total:
            raise InvalidPartitionsError(f"row {row} names partition {partition} of a topic that has {total}")
        spread.add(row, partition)
        row += 1
    return spread.finish()


class _RowsByPartition:
    """Rows per partition as they are dealt out."""

    __slots__ = ("_rows",)

    def __init__(self, partitions: int) -> None:
        self._rows: list[BytesWriter] = [BytesWriter() for _ in range(partitions)]

    def add(self, row: i64, partition: i64) -> None:
        write_i32_le(self._rows[partition], i32(row))

    def finish(self) -> list[bytes]:
        return [rows.getvalue() for rows in self._rows]
