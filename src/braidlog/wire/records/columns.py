"""Records as columns of spans over the bytes they arrived in, ready for Arrow (hot: compiled by mypyc).

Nothing of a key, a value or a header is copied, and no object is made per record: each is one 16-byte "view", the
element of Arrow's binary-view layout, in which C++ then gathers or casts whole columns (all little-endian):

     longer than 12 bytes                                    up to 12 bytes
     +--------+----------------+--------+-----------+        +--------+------------------------------------+
     | length | first 4 bytes  | buffer | position  |        | length | the bytes, padded with zeros to 12 |
     | 4      | 4              | 4      | 4         |        | 4      | 12                                 |
     +--------+----------------+--------+-----------+        +--------+------------------------------------+

`buffer` is an index into `RecordColumns.buffers`: the fetched bytes themselves, and what compressed batches hold.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from braidlog.wire.records.varint import INT64_MAX

INLINE: Final = 12


class SpanColumn:
    """A nullable column of byte strings: their views, and a bitmap with a one for each that is not null."""

    __slots__ = ("_bits", "_validity", "_views", "count", "nulls")

    def __init__(self) -> None:
        self._views = BytesWriter()
        self._validity = BytesWriter()
        # The bits of the bitmap's last byte, which is not full yet.
        self._bits: i64 = 0
        self.count: i64 = 0
        self.nulls: i64 = 0

    def add(self, buffer: bytes, at: i64, length: i64, index: i64) -> None:
        """The `length` bytes at `at` of `buffer`, which is number `index` of the buffers."""
        views = self._views
        if length > INLINE:
            write_i32_le(views, i32(length))
            write_i32_le(views, read_i32_le(buffer, at))
            write_i32_le(views, i32(index))
            write_i32_le(views, i32(at))
        else:
            _write_inline(views, buffer, at, length)
        self._mark(1)

    def add_null(self) -> None:
        write_i64_le(self._views, 0)
        write_i64_le(self._views, 0)
        self.nulls += 1
        self._mark(0)

    def _mark(self, bit: i64) -> None:
        place: i64 = self.count & 7
        bits: i64 = self._bits | bit << place
        if place == 7:
            self._validity.append(u8(bits))
            bits = 0
        self._bits = bits
        self.count += 1

    @property
    def views(self) -> bytes:
        return self._views.getvalue()

    @property
    def validity(self) -> bytes:
        """The bitmap, lowest bit first, its last byte padded with zeros."""
        if self.count & 7 == 0:
            return self._validity.getvalue()
        return self._validity.getvalue() + bytes([self._bits])

    def mark(self) -> tuple[int, int, int]:
        """What `rewind` takes to forget all that is added from now on."""
        return self.count, self.nulls, self._bits

    def rewind(self, mark: tuple[int, int, int]) -> None:
        count, nulls, bits = mark
        self._views.truncate(16 * count)
        self._validity.truncate(count >> 3)
        self.count = count
        self.nulls = nulls
        self._bits = bits


def _write_inline(views: BytesWriter, buffer: bytes, at: i64, length: i64) -> None:
    first: i64 = 0
    rest: i64 = 0
    if at + INLINE <= len(buffer):
        first = i64(read_i32_le(buffer, at))
        if length < 4:
            first &= INT64_MAX >> 63 - 8 * length
        elif length > 4:
            rest = read_i64_le(buffer, at + 4)
            if length < INLINE:
                # Not (1 << bits) - 1: compiled code would shift the small literal in 32 bits.
                rest &= INT64_MAX >> 63 - 8 * (length - 4)
    else:
        # Too near the buffer's end to read whole words.
        word = int.from_bytes(buffer[at : at + length], "little")
        first = word & 0x7FFFFFFF
        if word & 0x80000000:
            first -= 0x80000000
        word >>= 32
        rest = word if word <= INT64_MAX else word - 0x10000000000000000
    write_i32_le(views, i32(length))
    write_i32_le(views, i32(first))
    write_i64_le(views, rest)


class RecordColumns:
    """The columns of the records of many batches; only those that are wanted are filled.

    `offsets` and `timestamps` are int64 each. `header_starts` holds, int32, where the headers of each record start
    among all headers, without the end of the last. The runs hold (value, number of records) of what a batch's
    records share.
    """

    __slots__ = (
        "buffers",
        "count",
        "header_keys",
        "header_starts",
        "header_values",
        "keys",
        "leader_epoch_runs",
        "offsets",
        "size",
        "timestamp_type_runs",
        "timestamps",
        "values",
        "wants_headers",
        "wants_keys",
        "wants_offsets",
        "wants_timestamps",
        "wants_values",
    )

    def __init__(
        self,
        *,
        keys: bool = True,
        values: bool = True,
        headers: bool = True,
        offsets: bool = True,
        timestamps: bool = True,
    ) -> None:
        self.wants_keys = keys
        self.wants_values = values
        self.wants_headers = headers
        self.wants_offsets = offsets
        self.wants_timestamps = timestamps
        self.count: i64 = 0
        # Bytes of records, uncompressed, that were added: about what the columns take.
        self.size: i64 = 0
        self.buffers: list[bytes] = []
        self.keys = SpanColumn()
        self.values = SpanColumn()
        self.header_keys = SpanColumn()
        self.header_values = SpanColumn()
        self.header_starts = BytesWriter()
        self.offsets = BytesWriter()
        self.timestamps = BytesWriter()
        self.timestamp_type_runs: list[tuple[int, int]] = []
        self.leader_epoch_runs: list[tuple[int, int]] = []

    def index_of(self, buffer: bytes) -> int:
        """The number under which views refer to `buffer`."""
        if not self.buffers or self.buffers[-1] is not buffer:
            self.buffers.append(buffer)
        return len(self.buffers) - 1

    def end_batch(self, added: int, timestamp_type: int, leader_epoch: int) -> None:
        """Count the records that a batch added, and note what they share."""
        if added == 0:
            return
        self.count += added
        _extend(self.timestamp_type_runs, timestamp_type, added)
        _extend(self.leader_epoch_runs, leader_epoch, added)

    def mark(self) -> ColumnsMark:
        return ColumnsMark(self)

    def rewind(self, mark: ColumnsMark) -> None:
        """Forget what a batch added that broke in its midst: nothing of it was counted yet."""
        self.keys.rewind(mark.keys)
        self.values.rewind(mark.values)
        self.header_keys.rewind(mark.header_keys)
        self.header_values.rewind(mark.header_values)
        self.header_starts.truncate(mark.header_starts)
        self.offsets.truncate(mark.offsets)
        self.timestamps.truncate(mark.timestamps)


class ColumnsMark:
    """How far columns were filled when a batch began."""

    __slots__ = ("header_keys", "header_starts", "header_values", "keys", "offsets", "timestamps", "values")

    def __init__(self, columns: RecordColumns) -> None:
        self.keys = columns.keys.mark()
        self.values = columns.values.mark()
        self.header_keys = columns.header_keys.mark()
        self.header_values = columns.header_values.mark()
        self.header_starts: i64 = len(columns.header_starts)
        self.offsets: i64 = len(columns.offsets)
        self.timestamps: i64 = len(columns.timestamps)


def _extend(runs: list[tuple[int, int]], value: int, added: int) -> None:
    if runs and runs[-1][0] == value:
        runs[-1] = (value, runs[-1][1] + added)
    else:
        runs.append((value, added))
