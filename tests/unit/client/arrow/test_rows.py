from __future__ import annotations

import pyarrow as pa
import pytest

from braidlog.client.arrow.producing import send_arrow
from braidlog.client.arrow.rows import pieces_of
from braidlog.core.errors import UserError
from support.arrow_sink import KeepingSink


def test_a_word_that_stands_for_many_rows_is_written_out_bit_by_bit() -> None:
    words = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int32()), pa.array([b"x" * 10_000]))
    pieces = list(pieces_of(pa.record_batch({"value": words}), 100_000))
    assert sum(each.num_rows for each in pieces) == 1000
    assert max(each.num_rows for each in pieces) <= 10


def test_large_rows_that_are_together_are_taken_apart() -> None:
    rows = [b""] * 1000 + [b"x" * 10_000] * 100
    pieces = list(pieces_of(pa.record_batch({"value": rows}), 100_000))
    assert [value for each in pieces for value in each.column("value").to_pylist()] == rows
    assert max(each.nbytes for each in pieces) <= 4 * 100_000


@pytest.mark.parametrize(
    "kind", [pa.string_view(), pa.large_string(), pa.binary(), pa.dictionary(pa.int8(), pa.string())]
)
def test_topics_and_values_of_every_layout(kind: pa.DataType) -> None:
    sink = KeepingSink({"t": 1, "u": 1})
    values = pa.array(["one", "two", None], pa.string_view())
    send_arrow(sink, pa.table({"topic": pa.array(["t", "u", "t"]).cast(kind), "value": values}))
    assert sink.values("t") == {0: [b"one", None]}
    assert sink.values("u") == {0: [b"two"]}


def test_a_topic_that_is_null_within_the_dictionary() -> None:
    topics = pa.DictionaryArray.from_arrays(pa.array([0, 1]), pa.array(["t", None]))
    sink = KeepingSink({"t": 1, "None": 1})
    with pytest.raises(UserError, match="every row needs a topic"):
        send_arrow(sink, pa.table({"topic": topics, "value": ["a", "b"]}))
    assert sink.kept == []
