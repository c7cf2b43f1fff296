"""Tables to batches: which rows go where, in which order, and what is refused."""

from __future__ import annotations

import asyncio
import time

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.client.arrow.producing import send_arrow
from braidlog.client.arrow.rows import pieces_of
from braidlog.client.errors import RecordTooLargeError
from braidlog.client.producer.accumulator.record_accumulator import AccumulatorLimits
from braidlog.core.errors import UserError
from braidlog.wire.records.key_hash import partition_for_key
from support.arrow_sink import KeepingSink


def test_a_table_becomes_records() -> None:
    sink = KeepingSink({"t": 1})
    before = time.time_ns() // 1_000_000
    headers = pa.array([[("h", b"1")], None], pa.map_(pa.string(), pa.binary()))
    send_arrow(sink, pa.table({"key": ["a", None], "value": [b"1", None], "headers": headers, "other": [1, 2]}), "t")
    first, second = sink.records()
    assert (first.key, first.value, first.headers) == (b"a", b"1", (("h", b"1"),))
    assert (second.key, second.value, second.headers) == (None, None, ())
    assert before <= first.timestamp <= time.time_ns() // 1_000_000


def test_columns_by_other_names() -> None:
    sink = KeepingSink({"t": 1})
    table = pa.table({"key": ["no"], "id": ["a"], "body": [b"1"], "at": pa.array([5000], pa.timestamp("us", "UTC"))})
    send_arrow(sink, table, "t", key="id", value="body", timestamp="at")
    send_arrow(sink, table, "t", key=None, value=None)
    first, second = sink.records()
    assert (first.key, first.value, first.timestamp) == (b"a", b"1", 5)
    assert (second.key, second.value) == (None, None)


@settings(max_examples=40)
@given(
    keys=st.lists(st.none() | st.text(max_size=5), max_size=40),
    chunk=st.integers(1, 9),
    partitions=st.integers(1, 5),
    batch_size=st.integers(80, 300),
)
def test_keys_choose_partitions_and_order_is_kept(
    keys: list[str | None], chunk: int, partitions: int, batch_size: int
) -> None:
    sink = KeepingSink({"t": partitions}, AccumulatorLimits(batch_size=batch_size))
    whole = pa.table({"key": pa.array(keys, pa.string()), "value": [str(row) for row in range(len(keys))]})
    table = pa.concat_tables(whole.slice(at, chunk) for at in range(0, len(keys), chunk)) if keys else whole
    send_arrow(sink, table, "t", batch_size=batch_size)
    spread = sink.values("t")
    assert sorted(value for values in spread.values() for value in values) == sorted(
        str(row).encode() for row in range(len(keys))
    )
    for partition, values in spread.items():
        numbers = [int(value or b"") for value in values]
        assert numbers == sorted(numbers)
        for number in numbers:
            key = keys[number]
            assert key is None or partition_for_key(key.encode(), partitions) == partition
    assert all(len(each.body) + 61 <= batch_size or each.batch.count == 1 for each in sink.kept)


def test_keyless_rows_avoid_partitions_without_a_leader() -> None:
    sink = KeepingSink({"t": 3}, leaderless=(1,))
    send_arrow(sink, pa.table({"value": ["x"] * 30}), "t", keyless="round-robin")
    assert {partition: len(values) for partition, values in sink.values("t").items()} == {0: 15, 2: 15}


def test_sticky_rows_fill_batches() -> None:
    sink = KeepingSink({"t": 4})
    send_arrow(sink, pa.table({"value": ["x" * 100] * 1000}), "t", batch_size=11_000)
    # Not one small batch for each of many turns: nearly all are full.
    assert len(sink.kept) <= 14
    assert len(sink.values("t")) == 4


def test_partition_by_a_column() -> None:
    table = pa.table({"value": ["a", "b", "c"], "p": [2, 0, 2], "region": ["x", "y", "x"]})
    numbered = KeepingSink({"t": 3})
    send_arrow(numbered, table, "t", partition_by="p")
    assert numbered.values("t") == {0: [b"b"], 2: [b"a", b"c"]}
    hashed = KeepingSink({"t": 3})
    send_arrow(hashed, table, "t", partition_by="region")
    expected: dict[int, list[bytes]] = {}
    for region, value in ((b"x", b"a"), (b"y", b"b"), (b"x", b"c")):
        expected.setdefault(partition_for_key(region, 3), []).append(value)
    assert hashed.values("t") == expected
    fixed = KeepingSink({"t": 3})
    send_arrow(fixed, table, "t", partition_by=1)
    assert fixed.values("t") == {1: [b"a", b"b", b"c"]}


def test_a_column_of_topics() -> None:
    sink = KeepingSink({"a": 1, "b": 1})
    table = pa.table({"topic": ["b", "a", "b"], "value": ["1", "2", "3"]})
    send_arrow(sink, table)
    assert (sink.values("a"), sink.values("b")) == ({0: [b"2"]}, {0: [b"1", b"3"]})
    coded = table.set_column(0, "topic", table["topic"].dictionary_encode())
    again = KeepingSink({"a": 1, "b": 1})
    send_arrow(again, coded.slice(1, 1))
    assert (again.values("a"), again.values("b")) == ({0: [b"2"]}, {})


def test_anything_that_holds_arrow_batches() -> None:
    table = pa.table({"value": ["a", "b"]})

    class Stream:
        def __arrow_c_stream__(self, requested: object = None) -> object:
            return table.__arrow_c_stream__(requested)

    for data in (table, table.to_batches()[0], table.to_reader(), table.to_batches(), [table], Stream(), iter([table])):
        sink = KeepingSink({"t": 1})
        send_arrow(sink, data, "t")
        assert sink.values("t") == {0: [b"a", b"b"]}
    sink = KeepingSink({"t": 1})
    assert send_arrow(sink, table.slice(0, 0), "t").result().partitions == {}


def test_pieces_are_of_so_many_bytes() -> None:
    (batch,) = pa.table({"value": [b"x" * 96] * 95}).to_batches()
    sizes = [piece.num_rows for piece in pieces_of(batch, 1000)]
    assert sum(sizes) == 95
    assert max(sizes) == 10
    (batch,) = pa.table({"value": [b"x" * 5000] * 2}).to_batches()
    assert [piece.num_rows for piece in pieces_of(batch, 1000)] == [1, 1]


def test_many_partitions_get_full_batches() -> None:
    sink = KeepingSink({"t": 40})
    table = pa.table({"key": [str(number) for number in range(10_000)], "value": [b"x" * 1000] * 10_000})
    send_arrow(sink, table, "t")
    # 10 MB in one piece: a batch for each. In pieces for a single partition there would be three times as many.
    assert len(sink.kept) <= 60


@pytest.mark.parametrize(
    ("table", "options", "complaint"),
    [
        ({"key": ["a"]}, {}, r"no column 'value' for the value; it has key \(value=None"),
        ({"value": ["a"]}, {"key": "id"}, "no column 'id' for the key"),
        ({"value": ["a"]}, {"partition_by": "p"}, "no column 'p' for the partition"),
        ({"value": [1]}, {}, "column 'value' is int64"),
        (
            {"value": ["a"], "p": [3]},
            {"partition_by": "p"},
            "names partition 3 of a topic that has 3, counted from row 0",
        ),
        ({"value": ["a"]}, {"partition_by": 3}, "no partition 3; it has 3"),
        ({"value": ["a"], "at": [-7]}, {"timestamp": "at"}, "impossible timestamp -7"),
        ({"value": ["a"]}, {"keyless": "often"}, "keyless is"),
    ],
)
def test_what_cannot_be_sent(table: dict[str, list[object]], options: dict[str, object], complaint: str) -> None:
    sink = KeepingSink({"t": 3})
    with pytest.raises(UserError, match=complaint):
        send_arrow(sink, pa.table(table), "t", **options)  # type: ignore[arg-type]
    assert sink.kept == []


def test_other_things_that_cannot_be_sent() -> None:
    sink = KeepingSink({"t": 1})
    for data in ({"value": ["a"]}, b"bytes", 5, [1]):
        with pytest.raises(UserError, match="pyarrow"):
            send_arrow(sink, data, "t")
    with pytest.raises(UserError, match="no column 'topic'"):
        send_arrow(sink, pa.table({"value": ["a"]}))
    with pytest.raises(UserError, match="every row needs a topic"):
        send_arrow(sink, pa.table({"topic": ["t", None], "value": ["a", "b"]}))
    with pytest.raises(UserError, match="twice a column 'value'"):
        send_arrow(sink, pa.table([pa.array(["a"]), pa.array(["b"])], names=["value", "value"]), "t")


def test_a_row_that_no_request_may_carry() -> None:
    sink = KeepingSink({"t": 1}, AccumulatorLimits(max_request=1000))
    with pytest.raises(RecordTooLargeError, match=r"row 1 makes a batch of 20.. bytes, more than the 1000 allowed"):
        send_arrow(sink, pa.table({"value": [b"x", b"x" * 2000]}), "t")


def test_an_error_notes_what_was_handed_over_before() -> None:
    sink = KeepingSink({"t": 1}, AccumulatorLimits(max_request=1000))
    batches = pa.table({"value": [b"x", b"y"]}).to_batches() + pa.table({"value": [b"x" * 2000]}).to_batches()
    with pytest.raises(RecordTooLargeError, match="counted from row 2 of the table") as caught:
        send_arrow(sink, batches, "t")
    assert caught.value.__notes__ == ["2 rows of the table were handed over before, and are being sent"]


@pytest.mark.parametrize("topics", [None, ["t", "t", "u"]])
def test_a_row_that_cannot_be_sent_keeps_the_rows_beside_it_back(topics: list[str] | None) -> None:
    sink = KeepingSink({"t": 3, "u": 3}, AccumulatorLimits(max_request=1_000))
    table = {"value": ["a", "b", "x" * 2_000], "where": [0, 1, 2]} | ({} if topics is None else {"topic": topics})
    with pytest.raises(RecordTooLargeError):
        send_arrow(sink, pa.table(table), "t" if topics is None else None, partition_by="where")
    assert sink.kept == []


def test_a_notebooks_cell_may_send_a_table() -> None:
    sink = KeepingSink({"t": 1})

    async def cell() -> None:
        send_arrow(sink, pa.table({"value": ["a"]}), "t")

    asyncio.run(cell())
    assert sink.values("t") == {0: [b"a"]}
