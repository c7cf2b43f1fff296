from __future__ import annotations

import datetime
import io
import json
from decimal import Decimal
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.client.schema_registry.registry import Registry
from braidlog.client.schema_registry.wire_format import header
from pyspark_braidlog.pipeline.avro.columns import AvroReadPlan, decoded_array
from support.schema_registry import running_registry

UTC = datetime.UTC


AT = datetime.datetime(2026, 5, 4, 12, 0, 0, 250_000, UTC)


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
