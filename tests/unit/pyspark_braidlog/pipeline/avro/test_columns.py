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

from braidlog.client.schema_registry.registry import Registry, RegistryError
from braidlog.client.schema_registry.wire_format import header
from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.avro.columns import AvroReadPlan, WritePlan, decoded_array, encoded_array
from support.avro_types import EVERYTHING
from support.schema_registry import running_registry

UTC = datetime.UTC
AT = datetime.datetime(2026, 5, 4, 12, 0, 0, 250_000, UTC)
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


def test_bad_bytes_are_told_and_the_good_ones_beside_them_read() -> None:
    schema = record(("id", "long"), ("name", "string"))
    good = written(schema, {"id": 1, "name": "ann"})
    found = decoded(schema, good, b"", good[:-1], good + b"!", None, b"\xff" * 20, good)
    assert [row["error"] is None for row in found] == [True, False, False, False, True, False, True]
    assert [row["value"] is None for row in found] == [False, True, True, True, True, True, False]
    assert found[3]["error"] == "value is not Avro of its schema: 1 bytes follow it"


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
        registry = Registry(running.url, timeout_s=20)
    with pytest.raises(RegistryError, match="does not answer"):
        decoded("string", header(1) + b"\x02x", registry=registry)


def test_a_row_that_does_not_fit_is_refused() -> None:
    rows = pa.array([{"id": None}], type=pa.struct([("id", pa.int64())]))
    with pytest.raises(UserError, match="a row does not fit the Avro schema of value"):
        encoded_array(WritePlan(json.dumps(record(("id", "long"))), b"", "value"), rows)
