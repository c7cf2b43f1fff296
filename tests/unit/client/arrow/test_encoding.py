"""Arrow arrays to record bodies: every layout of bytes and text, slices, nulls, headers, timestamps."""

from __future__ import annotations

import datetime
import mmap
import struct

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.client.arrow.encoding import bytes_column, header_columns, partition_numbers, timestamps
from braidlog.core.errors import UserError
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.columns_building import BytesColumn, HeaderColumns, RecordSource, build_bodies
from braidlog.wire.records.reading import Header, Record

NOW = 1_700_000_000_123

LAYOUTS = [
    pa.binary(),
    pa.large_binary(),
    pa.binary_view(),
    pa.string(),
    pa.large_string(),
    pa.string_view(),
    pa.dictionary(pa.int32(), pa.string()),
    pa.dictionary(pa.int8(), pa.binary()),
]
PAIRS = pa.struct([("key", pa.string()), ("value", pa.binary())])


def body_of(values: BytesColumn | None, rows: int) -> bytes:
    bodies = build_bodies(RecordSource(rows, values=values), None, 1 << 30)
    return bodies[0].body if bodies else b""


def body_with(headers: HeaderColumns | None, rows: int) -> bytes:
    return build_bodies(RecordSource(rows, headers=headers), None, 1 << 30)[0].body


def expected(values: list[bytes | None]) -> bytes:
    return build_batch([Record(value=value) for value in values])[61:]


def expected_with(headers: list[tuple[Header, ...]]) -> bytes:
    return build_batch([Record(headers=each) for each in headers])[61:]


@settings(max_examples=100)
@given(
    texts=st.lists(st.none() | st.text(max_size=30), min_size=1, max_size=30),
    kind=st.sampled_from(LAYOUTS),
    cut=st.tuples(st.integers(0, 12), st.integers(1, 12)),
)
def test_any_layout_cut_anywhere(texts: list[str | None], kind: pa.DataType, cut: tuple[int, int]) -> None:
    values = [None if text is None else text.encode() for text in texts]
    plain = pa.array(values, pa.binary())
    if pa.types.is_dictionary(kind):
        whole = plain.cast(kind.value_type).dictionary_encode()
    else:
        whole = plain.cast(kind)
    piece = whole.slice(cut[0], cut[1])
    assert body_of(bytes_column(piece, "value"), len(piece)) == expected(values[cut[0] : cut[0] + cut[1]])


def test_fixed_size_and_null() -> None:
    fixed = pa.array([b"abcd", None, b"efgh"], pa.binary(4))
    assert body_of(bytes_column(fixed.slice(1), "value"), 2) == expected([None, b"efgh"])
    assert bytes_column(pa.nulls(3), "value") is None
    assert bytes_column(pa.nulls(3, pa.binary()), "value") is None


def test_other_types_are_refused() -> None:
    with pytest.raises(UserError, match=r"column 'value' is int64, but keys, values and headers are bytes or text"):
        bytes_column(pa.array([1, 2]), "value")


pairs = st.none() | st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)


@settings(max_examples=60)
@given(
    rows=st.lists(pairs, min_size=1, max_size=12),
    kind=st.sampled_from([pa.list_(PAIRS), pa.large_list(PAIRS), pa.map_(pa.string(), pa.binary())]),
    cut=st.tuples(st.integers(0, 5), st.integers(1, 12)),
)
def test_headers(rows: list[list[tuple[str, bytes | None]] | None], kind: pa.DataType, cut: tuple[int, int]) -> None:
    items: list[object] = list(rows)
    if not pa.types.is_map(kind):
        items = [None if row is None else [{"key": name, "value": value} for name, value in row] for row in rows]
    piece = pa.array(items, kind).slice(cut[0], cut[1])
    if len(piece) == 0:
        return
    wanted = [tuple(row or ()) for row in rows[cut[0] : cut[0] + cut[1]]]
    assert body_with(header_columns(piece, "headers"), len(piece)) == expected_with(wanted)


def test_headers_with_their_fields_the_other_way_round() -> None:
    swapped = pa.array(
        [[{"value": b"1", "key": "a"}]], pa.list_(pa.struct([("value", pa.binary()), ("key", pa.string())]))
    )
    assert body_with(header_columns(swapped, "headers"), 1) == expected_with([(("a", b"1"),)])


def test_headers_of_other_shapes_are_refused() -> None:
    for wrong in (pa.array([["a"]]), pa.array([b"a"]), pa.array([{"key": "a", "value": b"b"}])):
        with pytest.raises(UserError, match="headers are a list of structs"):
            header_columns(wrong, "headers")


def longs(packed: bytes) -> list[int]:
    return [int.from_bytes(packed[at : at + 8], "little", signed=True) for at in range(0, len(packed), 8)]


@pytest.mark.parametrize(
    "array",
    [
        pa.array([NOW, None, 5]),
        pa.array([NOW, None, 5], pa.timestamp("ms")),
        pa.array([NOW * 1000 + 999, None, 5000], pa.timestamp("us", "UTC")),
        pa.array([NOW * 1000000, None, 5000000], pa.timestamp("ns", "Europe/Berlin")),
    ],
    ids=["int", "ms", "us", "ns"],
)
def test_timestamps(array: pa.Array) -> None:
    assert longs(timestamps(array, "time", 77)) == [NOW, 77, 5]
    assert longs(timestamps(array.slice(1), "time", 77)) == [77, 5]


def test_other_timestamps() -> None:
    assert longs(timestamps(pa.nulls(2), "time", 77)) == [77, 77]
    assert longs(timestamps(pa.array([datetime.date(1970, 1, 2)]), "time", 77)) == [86_400_000]
    with pytest.raises(UserError, match="timestamps are times"):
        timestamps(pa.array(["now"]), "time", 77)


def test_partition_numbers() -> None:
    assert partition_numbers(pa.array([9, 1, 2]).slice(1), "p") == b"\1\0\0\0\2\0\0\0"
    with pytest.raises(UserError, match="every row needs the number of its partition"):
        partition_numbers(pa.array([1, None]), "p")


@pytest.mark.parametrize("kind", [pa.large_binary(), pa.large_string()])
def test_rows_beyond_two_gibibytes(kind: pa.DataType) -> None:
    far = 2**31 + 5
    with mmap.mmap(-1, far + 30) as memory:
        memory[far : far + 9] = b"onetwosix"
        places = struct.pack("<6q", far, far + 3, far + 6, far + 6, far + 9, far + 9)
        buffers = [pa.py_buffer(b"\x1b"), pa.py_buffer(places), pa.py_buffer(memory)]
        array = pa.Array.from_buffers(kind, 5, buffers)
        assert body_of(bytes_column(array, "v"), 5) == expected([b"one", b"two", None, b"six", b""])
        assert body_of(bytes_column(array.slice(1, 3), "v"), 3) == expected([b"two", None, b"six"])
        del array, buffers


def test_rows_that_are_too_many_bytes_at_once() -> None:
    with mmap.mmap(-1, 2**31) as memory:
        places = struct.pack("<2q", 0, 2**31)
        array = pa.Array.from_buffers(pa.large_binary(), 1, [None, pa.py_buffer(places), pa.py_buffer(memory)])
        with pytest.raises(UserError, match="more than can be sent at once"):
            bytes_column(array, "v")
        del array


@pytest.mark.parametrize(
    "array",
    [pa.array([2**61], pa.timestamp("s")), pa.array([2**60], pa.timestamp("s")), pa.array([2**63], pa.uint64())],
)
def test_times_that_no_record_can_have_do_not_wrap_around(array: pa.Array) -> None:
    with pytest.raises(UserError, match="column 'when'"):
        timestamps(array, "when", 0)
