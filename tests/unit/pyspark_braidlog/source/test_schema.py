"""Which columns and types a schema may have."""

from __future__ import annotations

import pytest
from pyspark.sql.types import ArrayType, BinaryType, StringType, StructField, StructType

from braidlog.core.errors import UserError
from pyspark_braidlog.source.schema import check_schema, record_schema


def test_the_whole_and_any_part_of_it() -> None:
    whole = record_schema(with_headers=True)
    check_schema(whole)
    check_schema(StructType([whole["timestamp"], whole["value"]]))
    check_schema(StructType([StructField("offset", whole["offset"].dataType, nullable=False)]))


def test_headers_whose_parts_are_said_not_to_be_null() -> None:
    pair = StructType([StructField("key", StringType(), nullable=False), StructField("value", BinaryType())])
    check_schema(StructType([StructField("headers", ArrayType(pair, containsNull=False))]))


@pytest.mark.parametrize(
    ("schema", "reported"),
    [
        (StructType().add("values", "binary"), "no column 'values'; .*key binary, value binary, topic string"),
        (StructType().add("value", "string"), r"value is binary, not string; .*CAST\(value AS STRING\)"),
        (StructType().add("offset", "integer"), "offset is bigint, not int; give it that type"),
        (StructType().add("value", "binary", nullable=False), "value cannot be NOT NULL"),
        (StructType().add("offset", "long").add("offset", "long"), "twice: offset, offset"),
        (StructType(), "no columns; choose among key binary"),
        (
            StructType(
                [StructField("headers", ArrayType(StructType().add("key", "string").add("value", "binary", False)))]
            ),
            "value in column headers cannot be NOT NULL",
        ),
    ],
)
def test_refusals(schema: StructType, reported: str) -> None:
    with pytest.raises(UserError, match=reported):
        check_schema(schema)
