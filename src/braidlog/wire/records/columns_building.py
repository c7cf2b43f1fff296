"""Columns of byte strings to the records of v2 batches, without an object per record (hot: compiled by mypyc).

The columns have Arrow's binary layout: all bytes end to end, where each string starts and ends (int32, little-endian,
one more than there are rows), and a bitmap with a zero for each null. The records are those that
`builder.build_batch` writes, byte for byte.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_le, read_i64_le, write_i64_le
from mypy_extensions import i64, u8

from braidlog.core.protocol_errors import InvalidRecordError, MessageTooLargeError
from braidlog.wire.records.batch import HEADER_SIZE, NO_TIMESTAMP
from braidlog.wire.records.encoding import varint_size, write_varint

_WORD: Final = 8


class BytesColumn:
    """A nullable column of byte strings: `data` from `starts[row] - base` to `starts[row + 1] - base`."""

    __slots__ = ("base", "bit", "data", "starts", "validity")

    def __init__(self, data: bytes, starts: bytes, *, base: int = 0, validity: bytes | None = None, bit: int = 0):
        self.data = data
        self.starts = starts
        self.base: i64 = base
        # None: nothing is null. Else row r is bit (bit + r), lowest first.
        self.validity = validity
        self.bit: i64 = bit

    def is_null(self, row: i64) -> bool:
        validity = self.validity
        if validity is None:
            return False
        at: i64 = self.bit + row
        return i64(validity[at >> 3]) >> (at & 7) & 1 == 0

    def start(self, row: i64) -> i64:
        return i64(read_i32_le(self.starts, 4 * row)) - self.base

    def length(self, row: i64) -> i64:
        """-1 when the row is null."""
        if self.is_null(row):
            return -1
        return i64(read_i32_le(self.starts, 4 * row + 4)) - i64(read_i32_le(self.starts, 4 * row))


class HeaderColumns:
    """A column of lists of headers: those of a row are `starts[row]` to `starts[row + 1]` of the two columns below."""

    __slots__ = ("base", "bit", "keys", "starts", "validity", "values")

    def __init__(
        self,
        starts: bytes,
        keys: BytesColumn,
        values: BytesColumn,
        *,
        base: int = 0,
        validity: bytes | None = None,
        bit: int = 0,
    ) -> None:
        self.starts = starts
        self.keys = keys
        self.values = values
        self.base: i64 = base
        self.validity = validity
        self.bit: i64 = bit

    def first(self, row: i64) -> i64:
        return i64(read_i32_le(self.starts, 4 * row)) - self.base

    def count(self, row: i64) -> i64:
        validity = self.validity
        if validity is not None:
            at: i64 = self.bit + row
            if i64(validity[at >> 3]) >> (at & 7) & 1 == 0:
                return 0
        return i64(read_i32_le(self.starts, 4 * row + 4)) - i64(read_i32_le(self.starts, 4 * row))


class RecordSource:
    """The columns that records are built of; a column that is missing is null in every record.

    `timestamps` are int64 milliseconds; without them every record has `timestamp`.
    """

    __slots__ = ("headers", "keys", "rows", "timestamp", "timestamps", "values")

    def __init__(
        self,
        rows: int,
        *,
        keys: BytesColumn | None = None,
        values: BytesColumn | None = None,
        headers: HeaderColumns | None = None,
        timestamps: bytes | None = None,
        timestamp: int = NO_TIMESTAMP,
    ) -> None:
        self.rows = rows
        self.keys = keys
        self.values = values
        self.headers = headers
        self.timestamps = timestamps
        self.timestamp = timestamp


class BuiltBody:
    """The records of one batch, plain: what follows its header. Offset and timestamp deltas count from 0."""

    __slots__ = ("base_timestamp", "body", "count", "max_timestamp")

    def __init__(self, body: bytes, count: int, base_timestamp: int, max_timestamp: int) -> None:
        self.body = body
        self.count = count
        self.base_timestamp = base_timestamp
        self.max_timestamp = max_timestamp


def build_bodies(
    source: RecordSource, order: bytes | None, batch_size: int, largest: int = 0x7FFFFFFF
) -> list[BuiltBody]:
    """The rows that `order` lists (int32 each; None: all) as batches of up to `batch_size` bytes, header counted.

    A record that alone is larger gets a batch of its own, up to `largest` bytes; past that MessageTooLargeError.
    """
    bodies: list[BuiltBody] = []
    count: i64 = source.rows if order is None else len(order) // 4
    timestamps = source.timestamps
    room: i64 = batch_size - HEADER_SIZE
    most: i64 = largest - HEADER_SIZE
    out = BytesWriter()
    timestamp: i64 = source.timestamp
    base_timestamp: i64 = 0
    max_timestamp: i64 = NO_TIMESTAMP
    delta: i64 = 0
    place: i64 = 0
    while place < count:
        row: i64 = place
        if order is not None:
            row = i64(read_i32_le(order, 4 * place))
        if timestamps is not None:
            timestamp = read_i64_le(timestamps, 8 * row)
        if timestamp < NO_TIMESTAMP:
            raise InvalidRecordError(f"row {row} has the impossible timestamp {timestamp}")
        if delta == 0:
            base_timestamp = timestamp
            max_timestamp = timestamp
        fixed: i64 = 1 + _fields_size(source, row)
        size: i64 = fixed + varint_size(timestamp - base_timestamp) + varint_size(delta)
        if delta > 0 and len(out) + varint_size(size) + size > room:
            bodies.append(BuiltBody(out.getvalue(), delta, base_timestamp, max_timestamp))
            out = BytesWriter()
            delta = 0
            base_timestamp = timestamp
            max_timestamp = timestamp
            size = fixed + 2
        if delta == 0 and varint_size(size) + size > most:
            whole = HEADER_SIZE + varint_size(size) + size
            raise MessageTooLargeError(f"row {row} makes a batch of {whole} bytes, more than the {largest} allowed")
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        write_varint(out, size)
        out.append(0)
        write_varint(out, timestamp - base_timestamp)
        write_varint(out, delta)
        _write_fields(out, source, row)
        delta += 1
        place += 1
    if delta > 0:
        bodies.append(BuiltBody(out.getvalue(), delta, base_timestamp, max_timestamp))
    return bodies


def _field_size(column: BytesColumn | None, row: i64) -> i64:
    if column is None:
        return 1
    length: i64 = column.length(row)
    if length < 0:
        return 1
    return varint_size(length) + length


def _fields_size(source: RecordSource, row: i64) -> i64:
    """Bytes of a row's key, value and headers as a record holds them."""
    size: i64 = _field_size(source.keys, row) + _field_size(source.values, row)
    headers = source.headers
    if headers is None:
        return size + 1
    count: i64 = headers.count(row)
    at: i64 = headers.first(row)
    size += varint_size(count)
    stop: i64 = at + count
    while at < stop:
        size += _field_size(headers.keys, at) + _field_size(headers.values, at)
        at += 1
    return size


def _write_fields(out: BytesWriter, source: RecordSource, row: i64) -> None:
    _write_field(out, source.keys, row)
    _write_field(out, source.values, row)
    headers = source.headers
    if headers is None:
        out.append(0)
        return
    count: i64 = headers.count(row)
    at: i64 = headers.first(row)
    write_varint(out, count)
    stop: i64 = at + count
    while at < stop:
        if headers.keys.is_null(at):
            raise InvalidRecordError(f"row {row} has a header without a key")
        _write_field(out, headers.keys, at)
        _write_field(out, headers.values, at)
        at += 1


def _write_field(out: BytesWriter, column: BytesColumn | None, row: i64) -> None:
    if column is None:
        out.append(1)
        return
    length: i64 = column.length(row)
    if length < 0:
        out.append(1)
        return
    write_varint(out, length)
    _copy(out, column.data, column.start(row), length)


def _copy(out: BytesWriter, data: bytes, at: i64, length: i64) -> None:
    """Append `length` bytes by words: cheaper than the object that a slice would make."""
    stop: i64 = at + length
    while stop - at >= _WORD:
        write_i64_le(out, read_i64_le(data, at))
        at += _WORD
    if at == stop:
        return
    if len(data) - at >= _WORD:
        # A whole word again, of which the end is taken back.
        size: i64 = len(out) + (stop - at)
        write_i64_le(out, read_i64_le(data, at))
        out.truncate(size)
        return
    while at < stop:
        out.append(u8(data[at]))
        at += 1
