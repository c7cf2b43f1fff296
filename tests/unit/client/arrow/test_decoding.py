"""Parsed columns as Arrow arrays: values, nulls, types, headers, and only what was asked for."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.client.arrow.decoding import is_pool_chosen, table_pool, to_record_batch
from braidlog.client.arrow.shape import COLUMNS, USUAL, BytesLayout, TableShape
from braidlog.core.errors import UserError
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.columns_slice import SliceReader
from braidlog.wire.records.reading import Record

NOW = 1_700_000_000_123

fields = st.none() | st.binary(max_size=30)
records = st.builds(
    Record,
    timestamp=st.integers(0, 1 << 45),
    key=fields,
    value=fields,
    headers=st.lists(st.tuples(st.text(max_size=14), fields), max_size=3).map(tuple),
)


def decoded(data: bytes, shape: TableShape | None = None) -> pa.RecordBatch:
    shape = shape or TableShape()
    columns = shape.new_columns()
    SliceReader(data, 0, len(data), 0).read_into(columns)
    batch = to_record_batch(columns, shape, "lines", 3)
    batch.validate(full=True)
    return batch


@settings(max_examples=60)
@given(
    batches=st.lists(st.lists(records, min_size=1, max_size=9), max_size=3),
    codec=st.sampled_from([0, 1, 4]),
    layout=st.sampled_from(["binary", "large_binary", "binary_view"]),
)
def test_tables_hold_the_records(batches: list[list[Record]], codec: int, layout: BytesLayout) -> None:
    data = b""
    expected: list[Record] = []
    for each in batches:
        data += build_batch(each, base_offset=len(expected), codec=codec)
        expected += each
    rows = decoded(data, TableShape(bytes_layout=layout)).to_pylist()
    assert [row["offset"] for row in rows] == list(range(len(expected)))
    assert [(row["key"], row["value"]) for row in rows] == [(each.key, each.value) for each in expected]
    headers = [tuple((pair["key"], pair["value"]) for pair in row["headers"]) for row in rows]
    assert headers == [each.headers for each in expected]


def test_the_usual_columns() -> None:
    batch = decoded(build_batch([Record(0, NOW, b"k", None, (("h", b"1"),))], leader_epoch=7))
    assert batch.schema.names == list(USUAL)
    (row,) = batch.to_pylist()
    assert row.pop("timestamp").timestamp() == NOW / 1000
    assert row == {
        "key": b"k",
        "value": None,
        "topic": "lines",
        "partition": 3,
        "offset": 0,
        "timestamp_type": 0,
        "headers": [{"key": "h", "value": b"1"}],
    }


def test_only_what_is_asked_for() -> None:
    batch = decoded(build_batch([Record(value=b"v", key=b"k")], leader_epoch=7), TableShape(["leader_epoch", "value"]))
    assert batch.to_pylist() == [{"leader_epoch": 7, "value": b"v"}]


def test_microseconds_for_spark() -> None:
    batch = decoded(build_batch([Record(timestamp=NOW)]), TableShape(["timestamp"], timestamp_unit="us"))
    assert batch.schema.field("timestamp").type == pa.timestamp("us", "UTC")
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [NOW * 1000]


def test_runs_of_epochs_and_timestamp_types() -> None:
    data = build_batch([Record()] * 2, leader_epoch=1) + build_batch(
        [Record()] * 3, base_offset=2, leader_epoch=2, log_append_time_ms=NOW
    )
    batch = decoded(data, TableShape(["leader_epoch", "timestamp_type"]))
    assert batch.column("leader_epoch").to_pylist() == [1, 1, 2, 2, 2]
    assert batch.column("timestamp_type").to_pylist() == [0, 0, 1, 1, 1]


def test_header_names_that_are_not_text() -> None:
    name = "abc"
    data = bytearray(build_batch([Record(headers=((name, b"1"), ("fine", b"2")))]))
    at = data.index(b"abc")
    data[at : at + 3] = b"\xff\xfeb"
    columns = TableShape(["headers"]).new_columns()
    SliceReader(bytes(data), 0, len(data), 0).read_into(columns, check=False)
    (row,) = to_record_batch(columns, TableShape(["headers"]), "lines", 0).to_pylist()
    assert [pair["key"] for pair in row["headers"]] == [b"\xff\xfeb".decode("utf-8", "replace"), "fine"]


def test_nothing_at_all_has_the_same_schema() -> None:
    for layout in ("binary", "large_binary", "binary_view"):
        shape = TableShape(COLUMNS, bytes_layout=layout)
        batch = decoded(b"", shape)
        assert batch.num_rows == 0
        assert batch.schema == shape.schema


def test_views_copy_nothing() -> None:
    data = build_batch([Record(value=b"a value longer than twelve")])
    value = decoded(data, TableShape(["value"], bytes_layout="binary_view")).column("value")
    assert value.buffers()[2].address == pa.py_buffer(data).address


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"columns": ["values"]}, "no column 'values'"),
        ({"columns": ["value", "value"]}, "asked for twice"),
        ({"columns": "value"}, r"write columns=\['value'\]"),
        ({"columns": []}, "list of names"),
        ({"timestamp_unit": "s"}, "'ms' or 'us'"),
        ({"bytes_layout": "string"}, "bytes_layout is one of"),
    ],
)
def test_wrong_arguments_raise(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        TableShape(**arguments)  # type: ignore[arg-type]


def test_times_beyond_what_microseconds_can_say() -> None:
    most = (2**63 - 1) // 1000
    records = [Record(timestamp=each, value=b"") for each in (5, 2**62, most)]
    batch = decoded(build_batch(records), TableShape(["timestamp"], timestamp_unit="us"))
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [5_000, most * 1000, most * 1000]


# --- memory


def test_the_environment_chooses_the_memory_pool() -> None:
    assert not is_pool_chosen({})
    assert is_pool_chosen({"ARROW_DEFAULT_MEMORY_POOL": "mimalloc"})
    assert is_pool_chosen({"MALLOC_TRIM_THRESHOLD_": "1"})


def test_all_tables_use_the_same_pool() -> None:
    assert table_pool() is table_pool()
