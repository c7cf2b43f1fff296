"""Avro records decoded and encoded in Spark, with schemas from files and from a registry."""

from __future__ import annotations

import datetime
import io
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from braidlog.client.schema_registry.wire_format import header
from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline import (
    Registry,
    dead_letters,
    decode_avro,
    decode_json,
    encode_avro,
    encode_json,
    split_malformed,
)
from support.schema_registry import RunningRegistry, running_registry

NOON = datetime.datetime(2026, 5, 4, 12, 0, 0, 250_000)
OLD: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "note", "type": "string"}],
}
NEW: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [
                        {"name": "item", "type": "string"},
                        {
                            "name": "price",
                            "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
                        },
                    ],
                },
            },
            "default": [],
        },
        {"name": "counts", "type": {"type": "map", "values": "int"}, "default": {}},
        {"name": "ref", "type": ["null", "int", "string"], "default": None},
    ],
}
ORDER: dict[str, Any] = {
    "id": 7,
    "at": NOON.replace(tzinfo=datetime.UTC),
    "lines": [{"item": "pen", "price": Decimal("1.50")}],
    "counts": {"a": 1},
    "ref": "r-7",
}


def written(schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def records(spark: SparkSession, *values: bytes | None) -> DataFrame:
    rows = [(b"k", value, "orders", 0, offset, NOON) for offset, value in enumerate(values)]
    return spark.createDataFrame(
        rows, "key binary, value binary, topic string, partition int, offset long, timestamp timestamp"
    )


@pytest.fixture(scope="module")
def running() -> Iterator[RunningRegistry]:
    with running_registry(user="ann", password="s3cret") as registry:
        yield registry


@pytest.fixture(scope="module")
def registry(running: RunningRegistry) -> Registry:
    return Registry(running.url, user="ann", password="s3cret")


def test_a_file_says_what_the_bytes_are(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "order.avsc"
    path.write_text(json.dumps(NEW))
    decoded = decode_avro(records(spark, written(NEW, ORDER), b"\x01", None), str(path))
    assert decoded.columns == ["key", "topic", "partition", "offset", "timestamp", "value", "raw_value", "error"]
    good, bad, none = decoded.orderBy("offset").collect()
    assert good.error is None
    assert good.value.asDict(True) == ORDER | {"at": NOON, "ref": {"member0": None, "member1": "r-7"}}
    assert (bad.value, bytes(bad.raw_value)) == (None, b"\x01")
    assert bad.error.startswith("value is not Avro of its schema")
    assert (none.value, none.error) == (None, None)
    # What is decoded is encoded to the same bytes.
    again = encode_avro(decoded.where("offset = 0"), path).collect()[0]
    assert bytes(again.value) == written(NEW, ORDER)


def test_records_of_all_versions_are_read_as_the_latest(spark: SparkSession, registry: Registry) -> None:
    first, second = registry.register("orders-value", OLD), registry.register("orders-value", NEW)
    rows = records(
        spark,
        header(first) + written(OLD, {"id": 1, "note": "gone since"}),
        header(second) + written(NEW, ORDER),
        header(99) + b"?",
        b'{"id":1}',
    )
    decoded = decode_avro(rows, registry=registry, subject="orders-value")
    good, bad = split_malformed(decoded)
    assert [(row.value.id, row.value.lines) for row in good.orderBy("offset").collect()] == [
        (1, []),
        (7, [("pen", Decimal("1.50"))]),
    ]
    letters = dead_letters(bad, topic="dead").collect()
    assert sorted(bytes(letter.headers[0].value).decode() for letter in letters) == [
        "value does not begin with a schema id: 7b 22 69 64 22",
        "value: schema id 99 is not in the registry",
    ]


def test_bytes_are_decoded_once_for_the_filter_and_the_columns(spark: SparkSession) -> None:
    good, _ = split_malformed(decode_avro(records(spark), OLD))
    plan = good.select("value.id")._jdf.queryExecution().executedPlan().toString()  # type: ignore[operator]
    assert plan.count("ArrowEvalPython") == 1, plan


def test_schemas_are_registered_only_when_asked(
    spark: SparkSession, registry: Registry, running: RunningRegistry
) -> None:
    frame = spark.createDataFrame([("k", 1, "ann")], "key string, id int, name string")
    with pytest.raises(UserError, match="Subject 'people-value' not found"):
        encode_avro(frame, registry=registry, subject="people-value", fields=["id", "name"])
    encoded = encode_avro(frame, registry=registry, subject="people-value", register=True, fields=["id", "name"])
    assert encoded.columns == ["key", "value"]
    number = registry.latest("people-value").id
    data = bytes(encoded.collect()[0].value)
    assert data[:5] == header(number)
    decoded = decode_avro(encoded, registry=registry, subject="people-value", flatten=True).collect()[0]
    assert (decoded.id, decoded.name, decoded.error) == (1, "ann", None)
    # With a schema that the subject has, nothing is registered.
    posts = len([line for line in running.contents.requests if line.endswith("/versions")])
    again = encode_avro(frame, registry=registry, subject="people-value", fields=["id", "name"])
    assert bytes(again.collect()[0].value) == data
    assert len([line for line in running.contents.requests if line.endswith("/versions")]) == posts
    with pytest.raises(UserError, match="register=True needs the registry"):
        encode_avro(frame, register=True, fields=["id"])


def test_a_row_that_does_not_fit_fails_the_query(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(None,)], "id int")
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}]}
    with pytest.raises(Exception, match="a row does not fit the Avro schema of value"):
        encode_avro(frame, schema, fields=["id"]).collect()


def test_json_of_a_registry(spark: SparkSession, registry: Registry) -> None:
    schema = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
    number = registry.register("json-value", schema, "JSON")
    framed = encode_json(spark.createDataFrame([(5,)], "id long"), fields=["id"], schema_id=number)
    assert bytes(framed.collect()[0].value) == header(number) + b'{"id":5}'
    rows = records(spark, header(number) + b'{"id":5}', b'{"id":5}', header(number) + b"{}", b"", None)
    found = decode_json(rows, registry=registry, subject="json-value").orderBy("offset").collect()
    assert found[0].value.id == 5
    assert [row.error for row in found] == [
        None,
        "value does not begin with a schema id: 7B22696422",
        "value lacks id, which the schema requires",
        "value does not begin with a schema id: ",
        None,
    ]
    registry.register("avro-only", OLD)
    with pytest.raises(UserError, match="has AVRO, not JSON Schema"):
        decode_json(rows, registry=registry, subject="avro-only")
    with pytest.raises(UserError, match="has JSON, not Avro"):
        decode_avro(rows, registry=registry, subject="json-value")


def test_a_schema_must_come_from_somewhere(spark: SparkSession, registry: Registry) -> None:
    with pytest.raises(UserError, match="needs schema="):
        decode_avro(records(spark))
    with pytest.raises(UserError, match="which schema of the registry"):
        decode_avro(records(spark), registry=registry)
    with pytest.raises(UserError, match=r"cannot read the schema file none\.avsc"):
        decode_avro(records(spark), "none.avsc")
    with pytest.raises(UserError, match="decodes bytes or text, but the column 'offset' is long"):
        decode_avro(records(spark), OLD, column="offset")
    assert decode_avro(records(spark).withColumn("n", F.lit(1)), OLD).columns[-4] == "n"
