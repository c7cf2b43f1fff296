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
from braidlog.wire.records.varint import nullable_size, varint_size, write_short_varint

_WORD: Final = 8
_MANY: Final = 512


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
    keys = source.keys
    values = source.values
    headers = source.headers
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
        key_length: i64 = -1
        value_length: i64 = -1
        if keys is not None:
            key_length = keys.length(row)
        if values is not None:
            value_length = values.length(row)
        # All but the two deltas; attributes take one byte, and so do no headers.
        fixed: i64 = 1 + nullable_size(key_length) + nullable_size(value_length)
        fixed += 1 if headers is None else _headers_size(headers, row)
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
        write_short_varint(out, size)
        out.append(0)
        write_short_varint(out, timestamp - base_timestamp)
        write_short_varint(out, delta)
        write_short_varint(out, key_length)
        if key_length > 0 and keys is not None:
            append_bytes(out, keys.data, keys.start(row), key_length)
        write_short_varint(out, value_length)
        if value_length > 0 and values is not None:
            append_bytes(out, values.data, values.start(row), value_length)
        if headers is None:
            out.append(0)
        else:
            _write_headers(out, headers, row)
        delta += 1
        place += 1
    if delta > 0:
        bodies.append(BuiltBody(out.getvalue(), delta, base_timestamp, max_timestamp))
    return bodies


def _headers_size(headers: HeaderColumns, row: i64) -> i64:
    count: i64 = headers.count(row)
    at: i64 = headers.first(row)
    size: i64 = varint_size(count)
    stop: i64 = at + count
    while at < stop:
        size += nullable_size(headers.keys.length(at)) + nullable_size(headers.values.length(at))
        at += 1
    return size


def _write_headers(out: BytesWriter, headers: HeaderColumns, row: i64) -> None:
    count: i64 = headers.count(row)
    at: i64 = headers.first(row)
    write_short_varint(out, count)
    stop: i64 = at + count
    while at < stop:
        if headers.keys.is_null(at):
            raise InvalidRecordError(f"row {row} has a header without a key")
        _write_string(out, headers.keys, at)
        _write_string(out, headers.values, at)
        at += 1


def _write_string(out: BytesWriter, column: BytesColumn, row: i64) -> None:
    length: i64 = column.length(row)
    write_short_varint(out, length)
    if length > 0:
        append_bytes(out, column.data, column.start(row), length)


def append_bytes(out: BytesWriter, data: bytes, at: i64, length: i64) -> None:
    """Append `length` bytes by words: cheaper than the object that a slice would make, unless there are many."""
    stop: i64 = at + length
    if length > _MANY:
        out.write(data[at:stop])
        return
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
