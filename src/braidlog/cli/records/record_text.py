"""Fetched records as text, without an object for each record (hot: compiled by mypyc).

    fetched slice ─▶ columns (wire.records) ─▶ keys and values decoded ─▶ text ─▶ written

A `RecordText` is a sequence of parts: literal bytes and fields. How a key or a value becomes bytes of the output is
its `FieldText`, which is where a decoder goes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from librt.strings import BytesWriter, read_i32_le, read_i64_le
from mypy_extensions import i64, u8

from braidlog.wire.records.columns import INLINE, RecordColumns
from braidlog.wire.records.columns_building import append_bytes

LITERAL: Final = 0
OFFSET: Final = 1
TIMESTAMP: Final = 2
TIME: Final = 3
KEY: Final = 4
VALUE: Final = 5
KEY_SIZE: Final = 6
VALUE_SIZE: Final = 7
HEADERS: Final = 8

Headers = list[tuple[bytes, bytes | None]]

_VIEW: Final = 16
_QUOTE: Final = 0x22
_BACKSLASH: Final = 0x5C
_FIRST_PRINTABLE: Final = 0x20
_FIRST_BEYOND_ASCII: Final = 0x80
_THOUSAND: Final = 1000
_ZERO: Final = 0x30


class FieldText:
    """How a key or a value stands in the output: as it is, or as `decode` says.

    Where `is_quoted`, printable ASCII stands in double quotes as JSON has it, and only the rest is left to `decode`.
    """

    __slots__ = ("decode", "is_quoted")

    def __init__(self, decode: Callable[[bytes], bytes] | None = None, is_quoted: bool = False) -> None:
        self.decode = decode
        self.is_quoted = is_quoted


class Part:
    __slots__ = ("kind", "literal")

    def __init__(self, kind: int, literal: bytes = b"") -> None:
        self.kind: i64 = kind
        self.literal = literal


class Rows:
    """What is printed of a fetched slice."""

    __slots__ = (
        "buffers",
        "count",
        "header_keys",
        "header_starts",
        "header_values",
        "header_values_validity",
        "headers",
        "keys",
        "keys_validity",
        "offsets",
        "timestamps",
        "values",
        "values_validity",
    )

    def __init__(self, columns: RecordColumns) -> None:
        self.count: i64 = columns.count
        self.buffers = columns.buffers
        self.offsets = columns.offsets.getvalue()
        self.timestamps = columns.timestamps.getvalue()
        self.keys = columns.keys.views
        self.values = columns.values.views
        # Empty where nothing is null.
        self.keys_validity = columns.keys.validity if columns.keys.nulls else b""
        self.values_validity = columns.values.validity if columns.values.nulls else b""
        self.headers: i64 = columns.header_keys.count
        self.header_starts = columns.header_starts.getvalue()
        self.header_keys = columns.header_keys.views
        self.header_values = columns.header_values.views
        self.header_values_validity = columns.header_values.validity if columns.header_values.nulls else b""

    def offset(self, row: int) -> int:
        return read_i64_le(self.offsets, 8 * row)


class _Decimals:
    """Numbers in decimal that are mostly near the last one."""

    __slots__ = ("_text", "_thousands")

    def __init__(self) -> None:
        self._thousands: i64 = -1
        self._text = b""

    def write(self, out: BytesWriter, number: i64) -> None:
        if number < _THOUSAND:
            out.write(str(number).encode())
            return
        thousands: i64 = number // _THOUSAND
        if thousands != self._thousands:
            self._thousands = thousands
            self._text = str(thousands).encode()
        append_bytes(out, self._text, 0, len(self._text))
        rest: i64 = number - thousands * _THOUSAND
        out.append(u8(_ZERO + rest // 100))
        out.append(u8(_ZERO + rest // 10 % 10))
        out.append(u8(_ZERO + rest % 10))


class RecordText:
    """The text of the records of one partition; `parts` name neither topic nor partition, which are literals."""

    def __init__(
        self,
        parts: list[Part],
        key: FieldText,
        value: FieldText,
        null: bytes,
        time: Callable[[int], bytes],
        headers: Callable[[Headers], bytes],
    ) -> None:
        self._parts = parts
        self._key = key
        self._value = value
        self._null_text = null
        self._time = time
        self._headers = headers
        self._no_headers = headers([])
        self._offsets = _Decimals()
        self._timestamps = _Decimals()

    def columns(self) -> RecordColumns:
        """To be filled with a slice: those that are printed, and offsets."""
        kinds = {int(part.kind) for part in self._parts}
        return RecordColumns(
            keys=KEY in kinds or KEY_SIZE in kinds,
            values=VALUE in kinds or VALUE_SIZE in kinds,
            headers=HEADERS in kinds,
            timestamps=TIMESTAMP in kinds or TIME in kinds,
        )

    def render(self, rows: Rows, first: int, end: int) -> bytes:
        """The text of the rows `first` to `end - 1`."""
        out = BytesWriter()
        parts = self._parts
        row: i64 = first
        stop: i64 = end
        while row < stop:
            for part in parts:
                kind = part.kind
                if kind == LITERAL:
                    # Not `write`: a call for a few bytes takes longer than they do.
                    append_bytes(out, part.literal, 0, len(part.literal))
                elif kind == VALUE:
                    self._write(out, rows, rows.values, rows.values_validity, row, self._value)
                elif kind == KEY:
                    self._write(out, rows, rows.keys, rows.keys_validity, row, self._key)
                elif kind == OFFSET:
                    self._offsets.write(out, read_i64_le(rows.offsets, 8 * row))
                elif kind == TIMESTAMP:
                    self._timestamps.write(out, read_i64_le(rows.timestamps, 8 * row))
                elif kind == HEADERS:
                    self._write_headers(out, rows, row)
                elif kind == TIME:
                    out.write(self._time(read_i64_le(rows.timestamps, 8 * row)))
                elif kind == KEY_SIZE:
                    _write_size(out, rows.keys, rows.keys_validity, row)
                else:
                    _write_size(out, rows.values, rows.values_validity, row)
            row += 1
        return out.getvalue()

    def _write(self, out: BytesWriter, rows: Rows, views: bytes, validity: bytes, row: i64, field: FieldText) -> None:
        if _is_null(validity, row):
            out.write(self._null_text)
            return
        buffer = views
        at: i64 = _VIEW * row + 4
        length: i64 = i64(read_i32_le(views, _VIEW * row))
        if length > INLINE:
            buffer = rows.buffers[i64(read_i32_le(views, at + 4))]
            at = i64(read_i32_le(views, at + 8))
        decode = field.decode
        if decode is None:
            append_bytes(out, buffer, at, length)
        elif not field.is_quoted or not _write_quoted(out, buffer, at, length):
            out.write(decode(buffer[at : at + length]))

    def _write_headers(self, out: BytesWriter, rows: Rows, row: i64) -> None:
        at: i64 = i64(read_i32_le(rows.header_starts, 4 * row))
        end: i64 = rows.headers
        if row + 1 < rows.count:
            end = i64(read_i32_le(rows.header_starts, 4 * row + 4))
        if at == end:
            out.write(self._no_headers)
            return
        headers: Headers = []
        while at < end:
            name = _bytes_at(rows, rows.header_keys, at)
            value: bytes | None = None
            if not _is_null(rows.header_values_validity, at):
                value = _bytes_at(rows, rows.header_values, at)
            headers.append((name, value))
            at += 1
        out.write(self._headers(headers))


def _is_null(validity: bytes, row: i64) -> bool:
    return len(validity) > 0 and i64(validity[row >> 3]) >> (row & 7) & 1 == 0


def _bytes_at(rows: Rows, views: bytes, row: i64) -> bytes:
    at: i64 = _VIEW * row
    length: i64 = i64(read_i32_le(views, at))
    if length <= INLINE:
        return views[at + 4 : at + 4 + length]
    start: i64 = i64(read_i32_le(views, at + 12))
    return rows.buffers[i64(read_i32_le(views, at + 8))][start : start + length]


def _write_size(out: BytesWriter, views: bytes, validity: bytes, row: i64) -> None:
    size: i64 = -1
    if not _is_null(validity, row):
        size = i64(read_i32_le(views, _VIEW * row))
    out.write(str(size).encode())


def _write_quoted(out: BytesWriter, buffer: bytes, at: i64, length: i64) -> bool:
    """A JSON string of printable ASCII; False, and nothing written, where there is something else in it."""
    before: i64 = len(out)
    stop: i64 = at + length
    run: i64 = at
    out.append(_QUOTE)
    while at < stop:
        byte: i64 = buffer[at]
        if byte < _FIRST_PRINTABLE or byte >= _FIRST_BEYOND_ASCII:
            out.truncate(before)
            return False
        if byte == _QUOTE or byte == _BACKSLASH:
            append_bytes(out, buffer, run, at - run)
            out.append(_BACKSLASH)
            run = at
        at += 1
    append_bytes(out, buffer, run, stop - run)
    out.append(_QUOTE)
    return True
