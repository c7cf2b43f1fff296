"""Avro bytes to Arrow structures and back, by the bytes that fastavro and other writers make."""

from __future__ import annotations

import datetime
import io
import json
import uuid
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.client.schema_registry.registry import Registry, RegistryError
from braidlog.client.schema_registry.wire_format import header
from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.avro.columns import AvroReadPlan, WritePlan, decoded_array, encoded_array
from pyspark_braidlog.pipeline.avro.schema import avro_schema_of, expanded, spark_struct
from support.schema_registry import running_registry

UTC = datetime.UTC
AT = datetime.datetime(2026, 5, 4, 12, 0, 0, 250_000, UTC)
EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "namespace": "shop",
    "fields": [
        {"name": "flag", "type": "boolean"},
        {"name": "small", "type": "int"},
        {"name": "big", "type": "long"},
        {"name": "half", "type": "float"},
        {"name": "whole", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "text", "type": "string"},
        {"name": "maybe", "type": ["null", "string"], "default": None},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "other_colour", "type": ["Colour", "null"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": ["null", "int"]}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "clock_us", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "at_ms", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "at_us", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {
            "name": "fixed_price",
            "type": {
                "type": "fixed",
                "name": "Price",
                "size": 8,
                "logicalType": "decimal",
                "precision": 12,
                "scale": 3,
            },
        },
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {
            "name": "place",
            "type": {"type": "record", "name": "Place", "fields": [{"name": "city", "type": "string"}]},
        },
        {"name": "places", "type": {"type": "array", "items": "shop.Place"}},
        {
            "name": "visits",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Visit",
                    "fields": [{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}],
                },
            },
        },
    ],
}
ONE: dict[str, Any] = {
    "flag": True,
    "small": -7,
    "big": 1 << 40,
    "half": 0.5,
    "whole": 0.1,
    "raw": b"\x00\xff",
    "text": "Jürg ☃",
    "maybe": None,
    "colour": "BLUE",
    "other_colour": "RED",
    "hash": b"ab",
    "tags": ["x", ""],
    "counts": {"a": 1, "b": None},
    "day": AT.date(),
    "clock": datetime.time(1, 2, 3, 4000),
    "clock_us": datetime.time(1, 2, 3, 4),
    "at_ms": AT,
    "at_us": AT + datetime.timedelta(microseconds=3),
    "local": AT.replace(tzinfo=None),
    "price": Decimal("-12.50"),
    "fixed_price": Decimal("1.125"),
    "id": uuid.UUID(int=5),
    "place": {"city": "Bern"},
    "places": [{"city": "Wien"}],
    "visits": [{"at": AT}],
}
READ_BACK = ONE | {
    "counts": [("a", 1), ("b", None)],
    "clock": 3_723_004,
    "clock_us": 3_723_000_004,
    "id": "00000000-0000-0000-0000-000000000005",
}


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


def test_every_type_is_read() -> None:
    (found,) = decoded(EVERYTHING, written(EVERYTHING, ONE))
    assert found["error"] is None
    assert found["value"] == READ_BACK


def test_every_type_is_written_as_it_was_read() -> None:
    data = written(EVERYTHING, ONE)
    value = decoded_array(plan(EVERYTHING), pa.array([data, None])).field("value")
    made = encoded_array(WritePlan(json.dumps(EVERYTHING), b"\x00head", "value"), value)
    assert made.to_pylist() == [b"\x00head" + data, None]


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


def test_bad_bytes_are_told_and_the_good_ones_beside_them_read() -> None:
    schema = record(("id", "long"), ("name", "string"))
    good = written(schema, {"id": 1, "name": "ann"})
    found = decoded(schema, good, b"", good[:-1], good + b"!", None, b"\xff" * 20, good)
    assert [row["error"] is None for row in found] == [True, False, False, False, True, False, True]
    assert [row["value"] is None for row in found] == [False, True, True, True, True, True, False]
    assert found[3]["error"] == "value is not Avro of its schema: 1 bytes follow it"


@given(st.binary(max_size=40))
def test_no_bytes_break_the_reader(data: bytes) -> None:
    schema = record(("a", ["null", "string"]), ("b", {"type": "map", "values": "long"}), ("c", "double"))
    (found,) = decoded(schema, data)
    assert (found["value"] is None) != (found["error"] is None)


def test_a_value_that_spark_cannot_hold_is_malformed() -> None:
    schema = record(("price", {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}))
    too_long = b"\x08" + (123_456_7).to_bytes(4, "big")
    found = decoded(schema, too_long, b"\x02\x7f")
    assert found[0]["error"].startswith("value does not fit Spark's types")
    assert found[1]["value"] == {"price": Decimal("1.27")}


def test_the_registry_says_how_each_record_was_written() -> None:
    old = record(("id", "int"), ("gone", "string"))
    new = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "id", "type": "long"}, {"name": "name", "type": "string", "default": "nobody"}],
    }
    with running_registry() as running:
        registry = Registry(running.url)
        first, second = registry.register("s", old), registry.register("s", new)
        other = registry.register("j", {"type": "object"}, "JSON")
        odd = registry.register("o", record(("id", "string")))
        found = decoded(
            new,
            header(first) + written(old, {"id": 1, "gone": "x"}),
            header(second) + written(new, {"id": 1 << 40, "name": "ann"}),
            header(77) + b"x",
            header(other) + b"{}",
            header(odd) + b"\x02x",
            b"{}",
            b"",
            b"\x00\x00",
            registry=registry,
        )
        asked = [line for line in running.contents.requests if line.startswith("GET")]
        decoded(new, header(first) + written(old, {"id": 1, "gone": "x"}), header(77) + b"", registry=registry)
        assert [line for line in running.contents.requests if line.startswith("GET")] == asked
    assert [row["value"] for row in found[:2]] == [{"id": 1, "name": "nobody"}, {"id": 1 << 40, "name": "ann"}]
    errors = [row["error"] for row in found[2:]]
    assert errors[0] == "value: schema id 77 is not in the registry"
    assert errors[1] == f"value was written with schema {other}, which is JSON, not Avro"
    assert errors[2].startswith("value is not Avro of its schema: SchemaResolutionError")
    assert errors[3:] == [
        "value does not begin with a schema id: 7b 7d",
        "value does not begin with a schema id: it is empty",
        "value does not begin with a schema id: 00 00",
    ]


PLACE: dict[str, Any] = {"type": "record", "name": "Place", "fields": [{"name": "x", "type": "int"}]}
PLACES = {**PLACE, "fields": [*PLACE["fields"], {"name": "y", "type": "int", "default": 9}]}
COLOUR: dict[str, Any] = {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}
HASH: dict[str, Any] = {"type": "fixed", "name": "Hash", "size": 2}
# So that the reader has a union of several, whatever else it has.
ALSO = ("also", ["int", "string"])


@pytest.mark.parametrize(
    ("writer", "value", "reader", "expected"),
    [
        (PLACE, {"x": 1}, ["null", PLACES], {"x": 1, "y": 9}),
        (PLACE, {"x": 1}, ["null", PLACES, "string"], {"member0": {"x": 1, "y": 9}, "member1": None}),
        (["null", PLACE], {"x": 1}, PLACES, {"x": 1, "y": 9}),
        (["null", PLACE], {"x": 1}, ["string", PLACES], {"member0": None, "member1": {"x": 1, "y": 9}}),
        (COLOUR, "RED", ["null", COLOUR], "RED"),
        (["null", COLOUR], "RED", COLOUR, "RED"),
        (COLOUR, "BLUE", ["int", COLOUR], {"member0": None, "member1": "BLUE"}),
        (HASH, b"ab", ["int", HASH], {"member0": None, "member1": b"ab"}),
        (["null", HASH], b"ab", HASH, b"ab"),
    ],
)
def test_what_became_a_union_or_ceased_to_be_one_is_read(writer: Any, value: Any, reader: Any, expected: Any) -> None:
    with running_registry() as running:
        registry = Registry(running.url)
        old = record(("it", writer), ALSO)
        number = registry.register("s", old)
        data = header(number) + written(old, {"it": value, "also": "s"})
        (found,) = decoded(record(("it", reader), ALSO), data, registry=registry)
        assert found["error"] is None
        assert found["value"]["it"] == expected


MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))


@pytest.mark.parametrize(
    ("wrap", "value", "unwrap"),
    [
        (lambda time: time, AT, lambda found: found),
        (lambda time: ["null", time], AT, lambda found: found),
        (lambda time: {"type": "array", "items": ["null", time]}, [AT], lambda found: found[0]),
        (lambda time: {"type": "map", "values": time}, {"a": AT}, lambda found: dict(found)["a"]),
        (lambda time: record(("at", time)), {"at": AT}, lambda found: found["at"]),
        (lambda time: ["string", time], AT, lambda found: found["member1"]),
    ],
)
@pytest.mark.parametrize(("theirs", "ours"), [(MILLIS, MICROS), (MICROS, MILLIS)])
def test_times_are_read_in_the_units_that_they_were_written_in(
    wrap: Any, value: Any, unwrap: Any, theirs: Any, ours: Any
) -> None:
    with running_registry() as running:
        registry = Registry(running.url)
        old = {**record(("it", wrap(theirs))), "name": "Outer"}
        data = header(registry.register("s", old)) + written(old, {"it": value})
        (found,) = decoded({**record(("it", wrap(ours))), "name": "Outer"}, data, registry=registry)
        assert found["error"] is None
        assert unwrap(found["value"]["it"]) == AT


def test_a_writer_that_contains_itself_is_read_as_far_as_the_reader_goes() -> None:
    node = {**record(("id", "long"), ("next", ["null", "Node"])), "name": "Node"}
    with running_registry() as running:
        registry = Registry(running.url)
        data = header(registry.register("s", node)) + written(node, {"id": 1, "next": {"id": 2, "next": None}})
        assert decoded({**record(("id", "long")), "name": "Node"}, data, registry=registry) == [
            {"value": {"id": 1}, "error": None}
        ]


def test_a_writers_schema_that_is_none_spoils_its_own_records_only() -> None:
    schema = record(("id", "long"))
    with running_registry() as running:
        registry = Registry(running.url)
        good = registry.register("s", schema)
        running.contents.schemas[77] = {"schema": json.dumps({"type": "record", "name": "R", "fields": [{}]})}
        body = written(schema, {"id": 5})
        first, second = decoded(schema, header(77) + body, header(good) + body, registry=registry)
        assert first["value"] is None
        assert first["error"].startswith("value was written with schema 77, which cannot be used: the Avro schema")
        assert second == {"value": {"id": 5}, "error": None}


def test_a_registry_that_is_down_is_no_records_fault() -> None:
    with running_registry() as running:
        registry = Registry(running.url, timeout_s=2)
    with pytest.raises(RegistryError, match="does not answer"):
        decoded("string", header(1) + b"\x02x", registry=registry)


def test_a_row_that_does_not_fit_is_refused() -> None:
    rows = pa.array([{"id": None}], type=pa.struct([("id", pa.int64())]))
    with pytest.raises(UserError, match="a row does not fit the Avro schema of value"):
        encoded_array(WritePlan(json.dumps(record(("id", "long"))), b"", "value"), rows)


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
