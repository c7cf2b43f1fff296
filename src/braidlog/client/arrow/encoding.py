"""Arrow arrays to the columns that batches are built of: any layout of bytes or text, chunked, sliced, with nulls."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from braidlog.core.errors import UserError
from braidlog.wire.records.columns_building import BytesColumn, HeaderColumns

_INT32: Final = 4
_INT64: Final = 8
_LONGEST: Final = 0x7FFFFFFF


def bytes_column(array: pa.Array, name: str) -> BytesColumn | None:
    """A column of bytes or text; None when it is null all the way."""
    array = _as_binary(array, name)
    if array is None:
        return None
    validity, starts, data = array.buffers()
    count = len(array)
    if array.type in (pa.large_binary(), pa.large_string()):
        return _large_column(array, name)
    packed, first, last = _starts(starts, array.offset, count)
    content = data.slice(first, last - first).to_pybytes() if last > first else b""
    bitmap, bit = _validity(validity, array)
    return BytesColumn(content, packed, base=first, validity=bitmap, bit=bit)


def _large_column(array: pa.Array, name: str) -> BytesColumn:
    """Rows that may lie anywhere in more than 2 GiB, of which they are a small part."""
    validity, starts, data = array.buffers()
    places = pa.Array.from_buffers(pa.int64(), len(array) + 1, [None, starts], 0, array.offset)
    first, last = places[0].as_py(), places[-1].as_py()
    if last - first > _LONGEST:
        raise UserError(f"rows of column {name!r} have {last - first} bytes together, more than can be sent at once")
    packed = _fixed(pc.subtract(places, first).cast(pa.int32()), _INT32)
    content = data.slice(first, last - first).to_pybytes() if last > first else b""
    bitmap, bit = _validity(validity, array)
    return BytesColumn(content, packed, validity=bitmap, bit=bit)


def _as_binary(array: pa.Array, name: str) -> pa.Array | None:
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    kind = array.type
    if pa.types.is_null(kind) or array.null_count == len(array):
        return None
    if kind in (pa.binary(), pa.string(), pa.large_binary(), pa.large_string()):
        return array
    if pa.types.is_fixed_size_binary(kind) or kind in (pa.binary_view(), pa.string_view()):
        return array.cast(pa.binary())
    raise UserError(
        f"column {name!r} is {kind}, but keys, values and headers are bytes or text: cast it, "
        f"for instance pyarrow.compute.cast(table[{name!r}], 'string')"
    )


def _starts(buffer: pa.Buffer, offset: int, count: int) -> tuple[bytes, int, int]:
    """(int32 offsets of `count` elements and one more, the first of them, the last)."""
    packed = buffer.slice(_INT32 * offset, _INT32 * (count + 1)).to_pybytes()
    return packed, int.from_bytes(packed[:_INT32], "little"), int.from_bytes(packed[-_INT32:], "little")


def _validity(buffer: pa.Buffer | None, array: pa.Array) -> tuple[bytes | None, int]:
    """(the bytes of the bitmap, the bit of the first element), or no bitmap when nothing is null."""
    if buffer is None or array.null_count == 0:
        return None, 0
    first = array.offset >> 3
    bit = array.offset & 7
    return buffer.slice(first, (bit + len(array) + 7) // 8).to_pybytes(), bit


def header_columns(array: pa.Array, name: str) -> HeaderColumns | None:
    """A column of lists of (key, value) pairs, or of maps."""
    if pa.types.is_null(array.type) or array.null_count == len(array):
        return None
    kind = array.type
    if pa.types.is_large_list(kind):
        array = array.cast(pa.list_(kind.value_field))
        kind = array.type
    is_list = pa.types.is_list(kind) and pa.types.is_struct(kind.value_type) and kind.value_type.num_fields == 2
    if not is_list and not pa.types.is_map(kind):
        raise UserError(f"column {name!r} is {kind}, but headers are a list of structs of key and value, or a map")
    validity, starts = array.buffers()[:2]
    packed, first, last = _starts(starts, array.offset, len(array))
    # Flattened: where a whole pair is null, its key is.
    keys, values = array.values.slice(first, last - first).flatten()
    pair = kind.value_type if is_list else None
    if pair is not None and (pair.field(0).name, pair.field(1).name) == ("value", "key"):
        keys, values = values, keys
    bitmap, bit = _validity(validity, array)
    none = BytesColumn(b"", bytes(_INT32 * (last - first + 1)), validity=bytes((last - first + 7) // 8))
    return HeaderColumns(
        packed,
        bytes_column(keys, f"{name}.key") or none,
        bytes_column(values, f"{name}.value") or none,
        base=first,
        validity=bitmap,
        bit=bit,
    )


def timestamps(array: pa.Array, name: str, missing_ms: int) -> bytes:
    """int64 milliseconds of a column of times, or of integers that are milliseconds; nulls become `missing_ms`."""
    kind = array.type
    if pa.types.is_null(kind):
        array = pa.nulls(len(array), pa.int64())
    elif pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        millis = pa.timestamp("ms", kind.tz if pa.types.is_timestamp(kind) else None)
        # What is finer than a millisecond is cut off, but nothing wraps around.
        options = pc.CastOptions(millis, allow_time_truncate=True)
        array = _cast(array, name, options=options).cast(pa.int64())
    elif pa.types.is_integer(kind):
        array = _cast(array, name, pa.int64())
    else:
        raise UserError(f"column {name!r} is {kind}, but timestamps are times, or integers that count milliseconds")
    return _fixed(pc.fill_null(array, missing_ms) if array.null_count else array, _INT64)


def partition_numbers(array: pa.Array, name: str) -> bytes:
    """int32 partition numbers of a column of integers."""
    if array.null_count:
        raise UserError(f"column {name!r} has nulls, but every row needs the number of its partition")
    return _fixed(_cast(array, name, pa.int32()), _INT32)


def topic_names(array: pa.Array, name: str) -> pa.DictionaryArray:
    """A column of topics, each name once."""
    if pa.types.is_dictionary(array.type):
        # Its words may be null, may be there twice, and need not be used.
        array = array.dictionary_decode()
    if not pa.types.is_null(array.type) and _as_binary(array, name) is not None:
        array = _cast(array, name, pa.string())
    if array.null_count:
        raise UserError(f"column {name!r} has nulls, but every row needs a topic; or give one topic for all")
    return array.dictionary_encode()


def _cast(array: pa.Array, name: str, kind: pa.DataType | None = None, *, options: Any = None) -> pa.Array:
    try:
        return pc.cast(array, kind, options=options)
    except pa.ArrowInvalid as problem:
        raise UserError(f"column {name!r}: {problem}") from problem


def _fixed(array: pa.Array, width: int) -> bytes:
    data: bytes = array.buffers()[1].slice(width * array.offset, width * len(array)).to_pybytes()
    return data
