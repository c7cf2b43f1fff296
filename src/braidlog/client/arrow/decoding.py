"""Parsed columns to Arrow arrays; what is done per record is done by Arrow's C++."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import cache
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from braidlog.client.arrow.shape import HEADER_FIELDS, HEADERS, TableShape
from braidlog.client.malloc_tuning import is_tuned, keep_large_buffers
from braidlog.wire.records.columns import RecordColumns, SpanColumn

_MOST_MILLIS: Final = ((1 << 63) - 1) // 1000


def to_record_batch(columns: RecordColumns, shape: TableShape, topic: str, partition: int) -> pa.RecordBatch:
    """The records that were parsed out of one partition."""
    source = _Source(columns, shape, topic, partition)
    return pa.RecordBatch.from_arrays([_MAKERS[name](source) for name in shape.columns], schema=shape.schema)


class _Source:
    """What columns are made of."""

    def __init__(self, columns: RecordColumns, shape: TableShape, topic: str, partition: int) -> None:
        self.columns = columns
        self.shape = shape
        self.topic = topic
        self.partition = partition
        self.count = int(columns.count)
        self.pool = table_pool()
        self.buffers = [pa.py_buffer(each) for each in columns.buffers]


def _bytes(source: _Source, column: SpanColumn, kind: pa.DataType) -> pa.Array:
    count = int(column.count)
    nulls = int(column.nulls)
    if nulls == count and kind != pa.binary_view():
        return pa.nulls(count, kind)
    validity = pa.py_buffer(column.validity) if nulls else None
    views = pa.Array.from_buffers(
        pa.binary_view(), count, [validity, pa.py_buffer(column.views), *source.buffers], nulls
    )
    return views if kind == pa.binary_view() else views.cast(kind, memory_pool=source.pool)


def _headers(source: _Source) -> pa.Array:
    columns = source.columns
    starts = columns.header_starts.getvalue() + int(columns.header_keys.count).to_bytes(4, "little")
    names = _bytes(source, columns.header_keys, pa.binary())
    pairs = pa.StructArray.from_arrays(
        [_as_text(source, names), _bytes(source, columns.header_values, pa.binary())], fields=list(HEADER_FIELDS)
    )
    return pa.Array.from_buffers(HEADERS, source.count, [None, pa.py_buffer(starts)], 0, 0, [pairs])


def _as_text(source: _Source, names: pa.Array) -> pa.Array:
    try:
        return names.cast(pa.string(), memory_pool=source.pool)
    except pa.ArrowInvalid:
        # A name that is not UTF-8: shown as other clients show it, at the price of going one by one.
        coded = names.dictionary_encode()
        words = [word.decode("utf-8", "replace") for word in coded.dictionary.to_pylist()]
        return pa.array(words, pa.string()).take(coded.indices)


def _runs(source: _Source, runs: list[tuple[int, int]]) -> pa.Array:
    pieces = [_repeated(source, pa.scalar(value, pa.int32()), count) for value, count in runs]
    if len(pieces) == 1:
        return pieces[0]
    return pa.concat_arrays(pieces, memory_pool=source.pool) if pieces else pa.array([], pa.int32())


def _repeated(source: _Source, value: pa.Scalar, count: int) -> pa.Array:
    return pa.repeat(value, count, memory_pool=source.pool)


def _longs(source: _Source, content: bytes, kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, source.count, [None, pa.py_buffer(content)], 0)


def _timestamps(source: _Source) -> pa.Array:
    millis = _longs(source, source.columns.timestamps.getvalue(), pa.timestamp("ms", "UTC"))
    kind = source.shape.timestamp_type
    if kind == millis.type:
        return millis
    try:
        return millis.cast(kind, memory_pool=source.pool)
    except pa.ArrowInvalid:
        # A producer may write any number: what has no microseconds in 64 bits becomes the latest or earliest that has.
        numbers = pc.max_element_wise(pc.min_element_wise(millis.cast(pa.int64()), _MOST_MILLIS), -_MOST_MILLIS)
        return numbers.cast(millis.type).cast(kind)


_MAKERS: Final[dict[str, Callable[[_Source], pa.Array]]] = {
    "key": lambda source: _bytes(source, source.columns.keys, source.shape.bytes_type),
    "value": lambda source: _bytes(source, source.columns.values, source.shape.bytes_type),
    "topic": lambda source: _repeated(source, pa.scalar(source.topic, pa.string()), source.count),
    "partition": lambda source: _repeated(source, pa.scalar(source.partition, pa.int32()), source.count),
    "offset": lambda source: _longs(source, source.columns.offsets.getvalue(), pa.int64()),
    "timestamp": _timestamps,
    "timestamp_type": lambda source: _runs(source, source.columns.timestamp_type_runs),
    "headers": _headers,
    "leader_epoch": lambda source: _runs(source, source.columns.leader_epoch_runs),
}


# Memory


@cache
def table_pool() -> pa.MemoryPool | None:
    """Where the memory of a table's columns comes from; None, Arrow's default, where the environment chooses one.

    Arrow's default pool gives pages back as eagerly as an untuned malloc does, and faulting them in again took longer
    than decoding what they hold. So columns come from malloc, which is tuned to keep some of what is freed.
    """
    keep_large_buffers()
    if not sys.platform.startswith("linux") or is_pool_chosen(os.environ):
        return None
    return pa.system_memory_pool()


def is_pool_chosen(environment: os._Environ[str] | dict[str, str]) -> bool:
    return "ARROW_DEFAULT_MEMORY_POOL" in environment or is_tuned(environment)
