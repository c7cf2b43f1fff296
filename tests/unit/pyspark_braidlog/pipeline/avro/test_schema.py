from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from braidlog.client.schema_registry.registry import Registry
from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.avro.columns import AvroReadPlan, WritePlan, decoded_array, encoded_array
from pyspark_braidlog.pipeline.avro.schema import avro_schema_of, expanded, spark_struct
from support.avro_types import EVERYTHING


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(schema))), value)
    return out.getvalue()


def plan(schema: Any, registry: Registry | None = None) -> AvroReadPlan:
    return AvroReadPlan(json.dumps(schema), registry, "value")


def decoded(schema: Any, *values: bytes | None, registry: Registry | None = None) -> list[dict[str, Any]]:
    found = decoded_array(plan(schema, registry), pa.array(values, type=pa.binary()))
    found.validate(full=True)
    return found.to_pylist()


def record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": kind} for name, kind in fields]}


def test_spark_types() -> None:
    assert spark_struct(expanded(EVERYTHING)).simpleString() == (
        "struct<flag:boolean,small:int,big:bigint,half:float,whole:double,raw:binary,text:string,maybe:string,"
        "colour:string,other_colour:string,hash:binary,tags:array<string>,counts:map<string,int>,day:date,clock:int,"
        "clock_us:bigint,at_ms:timestamp,at_us:timestamp,local:timestamp_ntz,price:decimal(9,2),"
        "fixed_price:decimal(12,3),id:string,place:struct<city:string>,places:array<struct<city:string>>,"
        "visits:array<struct<at:timestamp>>>"
    )
    nullable = {field.name for field in spark_struct(expanded(EVERYTHING)) if field.nullable}
    assert nullable == {"maybe", "other_colour", "at_us"}


def test_a_union_of_several_is_a_structure_of_members() -> None:
    schema = record(
        (
            "it",
            [
                "null",
                "int",
                "string",
                {"type": "enum", "name": "E", "symbols": ["A"]},
                record(("x", "long"))["fields"]
                and {"type": "record", "name": "P", "fields": [{"name": "x", "type": "long"}]},
                {"type": "record", "name": "Q", "fields": [{"name": "y", "type": ["null", "E"]}]},
                {"type": "map", "values": "int"},
                "boolean",
            ],
        )
    )
    values = [None, 5, "five", ("E", "A"), ("P", {"x": 1}), ("Q", {"y": "A"}), {"k": 1}, True]
    found = decoded(schema, *(written(schema, {"it": value}) for value in values))
    assert [row["error"] for row in found] == [None] * len(values)
    members = [
        None if row["value"]["it"] is None else {k: v for k, v in row["value"]["it"].items() if v is not None}
        for row in found
    ]
    assert members == [
        None,
        {"member0": 5},
        {"member1": "five"},
        {"member2": "A"},
        {"member3": {"x": 1}},
        {"member4": {"y": "A"}},
        {"member5": [("k", 1)]},
        {"member6": True},
    ]
    arrow = decoded_array(plan(schema), pa.array([written(schema, {"it": value}) for value in values])).field("value")
    again = encoded_array(WritePlan(json.dumps(schema), b"", "value"), arrow)
    assert again.to_pylist() == [written(schema, {"it": value}) for value in values]


def test_a_schema_that_is_no_record_is_a_field_called_value() -> None:
    assert decoded("string", written("string", "x")) == [{"value": {"value": "x"}, "error": None}]
    rows = pa.array([{"value": 7}, None], type=pa.struct([("value", pa.int64())]))
    assert encoded_array(WritePlan('"long"', b"", "key"), rows).to_pylist() == [written("long", 7), None]


def test_a_schema_made_from_columns_reads_as_the_same_columns() -> None:
    fields = spark_struct(expanded(EVERYTHING))
    assert spark_struct(expanded(avro_schema_of(fields, "Row"))) == fields


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (record(("next", ["null", "R"])), "contains itself"),
        (record(("a", "Unknown")), "'Unknown', which it does not define"),
        (record(("a", {"items": "int"})), "where a type should be"),
        (record(("a", {"type": "array"})), "lacks 'items'"),
        (record(("a", {"type": "bytes", "logicalType": "decimal", "precision": 60})), "decimal"),
    ],
)
def test_schemas_that_spark_cannot_hold(schema: Any, message: str) -> None:
    with pytest.raises(UserError) as refused:
        spark_struct(expanded(schema))
    assert message in str(refused.value)
