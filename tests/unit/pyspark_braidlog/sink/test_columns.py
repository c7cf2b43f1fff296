"""Which DataFrames can be written, and how their rows are handed to the producer."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StructType

from braidlog.core.errors import UserError
from pyspark_braidlog.sink.columns import Columns


def schema(text: str) -> StructType:
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        IntegerType,
        LongType,
        StringType,
        StructField,
    )

    pair = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    types: dict[str, Any] = {
        "binary": BinaryType(),
        "string": StringType(),
        "int": IntegerType(),
        "long": LongType(),
        "headers": ArrayType(pair),
        "swapped": ArrayType(StructType([pair["value"], pair["key"]])),
        "strings": ArrayType(StringType()),
    }
    return StructType([StructField(name, types[kind]) for name, kind in (each.split() for each in text.split(", "))])


def test_the_columns_of_the_connector_are_taken_and_others_left_out() -> None:
    table = schema("other long, key binary, value string, topic string, partition int, headers headers")
    assert Columns.of(table, None) == Columns(None, key=True, headers=True, partition=True)
    assert Columns.of(schema("value binary"), "t") == Columns("t", key=False, headers=False, partition=False)


def test_the_option_wins_over_the_column() -> None:
    # Whatever the column is.
    columns = Columns.of(schema("value binary, topic long"), "t")
    [(_, arguments)] = columns.pieces(pa.RecordBatch.from_pydict({"value": [b"1"], "topic": [None]}))
    assert arguments["topic"] == "t"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("value binary, value string", "there are several columns value"),
        ("key binary", "there is no column value (there are: key)"),
        ("value long", "column value is bigint, but has to be binary or string"),
        ("value binary, key int", "column key is int, but has to be binary or string"),
        ("value binary, partition long", "column partition is bigint, but has to be int"),
        ("value binary, headers strings", "has to be array<struct<key: string, value: binary>>"),
        ("value binary, headers swapped", "has to be array<struct<key: string, value: binary>>"),
    ],
)
def test_a_schema_that_cannot_be_written_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError) as refused:
        Columns.of(schema(text), "t")
    assert said in str(refused.value)


def test_without_any_topic_nothing_is_written() -> None:
    with pytest.raises(UserError, match="no topic to write to: set the option topic"):
        Columns.of(schema("value binary"), None)
    with pytest.raises(UserError, match="column topic is binary, but has to be string"):
        Columns.of(schema("value binary, topic binary"), None)


def test_a_null_topic_is_refused() -> None:
    columns = Columns.of(schema("value binary, topic string"), None)
    batch = pa.RecordBatch.from_pydict({"value": [b"1", b"2"], "topic": ["t", None]})
    with pytest.raises(UserError, match="rows whose topic is null"):
        list(columns.pieces(batch))
    with pytest.raises(UserError, match="rows whose topic is null"):
        columns.first_topic(batch)
    assert columns.first_topic(batch.slice(0, 1)) == "t"


def test_rows_without_a_partition_go_by_their_key() -> None:
    columns = Columns.of(schema("value binary, partition int"), "t")

    def sent(partitions: list[int | None]) -> list[tuple[list[bytes], str | None]]:
        values = [bytes([48 + each]) for each in range(len(partitions))]
        batch = pa.RecordBatch.from_arrays([pa.array(values), pa.array(partitions, pa.int32())], ["value", "partition"])
        return [(piece["value"].to_pylist(), by.get("partition_by")) for piece, by in columns.pieces(batch)]

    assert sent([2, 0]) == [([b"0", b"1"], "partition")]
    assert sent([None, None]) == [([b"0", b"1"], None)]
    assert sent([2, None, 1]) == [([b"0", b"2"], "partition"), ([b"1"], None)]
