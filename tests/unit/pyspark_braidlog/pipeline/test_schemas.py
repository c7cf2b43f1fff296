"""Schemas from files and objects; those in DDL need a JVM, and are in tests/spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql.types import ArrayType, LongType, StringType, StructField, StructType

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.schemas import nullable, schema_file, spark_schema
from pyspark_braidlog.pipeline.upsert.batch import UpsertRules

EXPECTED = StructType([StructField("id", LongType(), False), StructField("name", StringType())])
JSON_SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
}
AVRO = {
    "type": "record",
    "name": "User",
    "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}],
}


def test_every_notation_says_the_same(tmp_path: Path) -> None:
    assert spark_schema(EXPECTED) is EXPECTED
    for name, held in (("a.json", JSON_SCHEMA), ("b.avsc", AVRO), ("c.json", EXPECTED.jsonValue())):
        (tmp_path / name).write_text(json.dumps(held))
        assert spark_schema(tmp_path / name) == EXPECTED, name
        assert spark_schema(str(tmp_path / name)) == EXPECTED, name
        assert spark_schema(held) == EXPECTED, name


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "is not JSON"),
        ("a.json", "[]", "must hold a JSON object"),
        ("a.json", '{"type": "struct", "fields": [1]}', "is not a schema in Spark's JSON"),
        ("a.json", '{"type": "string"}', "describes string, but a record's columns come from a structure"),
        ("a.avsc", '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "R"}]}', "contains itself"),
        ("b.json", None, "cannot read the schema file"),
    ],
)
def test_files_that_are_no_schema(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=message):
        spark_schema(tmp_path / name)


def test_text_is_a_file_by_its_ending() -> None:
    assert schema_file("events.json") == Path("events.json")
    assert schema_file("id int, name string") is None
    assert schema_file("id int,\n at timestamp comment 'see at.json") is None


def test_nothing_is_required_of_what_is_read() -> None:
    strict = StructType(
        [StructField("a", ArrayType(EXPECTED, False), False), StructField("nullable", LongType(), False)]
    )
    loose = nullable(strict)
    assert loose.names == ["a", "nullable"]
    assert loose == StructType(
        [
            StructField("a", ArrayType(StructType([StructField("id", LongType()), StructField("name", StringType())]))),
            StructField("nullable", LongType()),
        ]
    )


def test_an_upsert_needs_keys() -> None:
    with pytest.raises(UserError, match="needs the columns that make a row's key"):
        UpsertRules.checked([], None, None, None)
    assert UpsertRules.checked("id", "offset", None, None)[:2] == (("id",), ("offset",))
