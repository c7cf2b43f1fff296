from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from braidlog.client.schema_registry.protobuf import messages_of
from braidlog.client.schema_registry.registry import ProtobufSchema, Registry, RegistryError
from braidlog.client.schema_registry.wire_format import header
from pyspark_braidlog.pipeline.protobuf.columns import ProtobufReadPlan, decoded_array
from support.protobuf_types import TYPES
from support.registry_records import ORDER_PROTO, USER_PROTO, captured
from support.schema_registry import running_registry


def plan(source: Any = TYPES, message: str = "types.All", registry: Registry | None = None) -> ProtobufReadPlan:
    return ProtobufReadPlan(source, message, registry, "value")


def decoded(plan: ProtobufReadPlan, *values: bytes | None) -> list[tuple[Any, str | None]]:
    made = decoded_array(plan, pa.array(values, type=pa.binary()))
    return [(each["value"], each["error"]) for each in made.to_pylist()]


def one(plan: ProtobufReadPlan, data: bytes) -> Any:
    ((value, error),) = decoded(plan, data)
    assert error is None
    return value


def test_malformed_values_do_not_spoil_others() -> None:
    good, bad, nothing = decoded(plan(), b"\x08\x07", b"\x0a\xff", None)
    assert (good[0]["a"], good[1], bad[0], nothing) == (7, None, None, (None, None))
    assert bad[1] is not None
    assert bad[1].startswith("value is not Protobuf of its schema: ")
    late = messages_of(TYPES).named("All")()
    late.at.seconds = 2**62
    good, far = decoded(plan(), b"\x08\x07", late.SerializeToString())
    assert (good[0]["a"], far[0]) == (7, None)
    assert far[1] is not None
    assert far[1].startswith("value does not fit Spark's types: ")


@pytest.mark.parametrize("form", ["descriptors", "text"])
def test_records_name_their_message(form: str) -> None:
    found = captured()
    with running_registry() as running:
        running.contents.schemas.update(found.schemas)
        running.contents.subjects.update(found.subjects)
        if form == "text":
            running.contents.schemas[3] = {**found.schemas[3], "schema": USER_PROTO}
            running.contents.schemas[4] = {**found.schemas[4], "schema": ORDER_PROTO}
        running.contents.schemas[5] = {"schema": ORDER_PROTO, "schemaType": "PROTOBUF"}
        registry = Registry(running.url)
        own = plan(registry.schema_by_id(4).schema, "shop.Order", registry)
        by_name = {each.name: each.data for each in found.records}
        order = one(own, by_name["protobuf shop.Order"])
        assert (order["id"], order["by"]["id"], order["state"]) == (7, 2**53 + 1, "PAID")
        assert order["lines"][0]["cents"] == Decimal(2**64 - 1)
        line = plan(own.source, "shop.Order.Line.Tag", registry)
        assert one(line, by_name["protobuf shop.Order.Line.Tag"]) == {"word": "w"}
        for data, reported in (
            (by_name["protobuf shop.Header"], "value is a shop.Header, not a shop.Order"),
            (by_name["avro"], "value was written with schema 1, which is AVRO, not Protobuf"),
            (b"{}", "value does not begin with a schema id: 7b 7d"),
            (header(4), "value ends within its message indexes"),
            (header(4) + b"\x02\x08", "value was written with schema 4, which has no message at [4]"),
            (header(99) + b"\x00", "value: schema id 99 is not in the registry"),
            (header(5) + b"\x00", "value was written with schema 5, which imports user.proto, which is not among"),
        ):
            ((value, error),) = decoded(own, data)
            assert value is None
            assert error is not None
            assert error.startswith(reported)
        running.contents.troubles += [(500, "{}")] * 3
        with pytest.raises(RegistryError, match="does not answer"):
            decoded(own, header(98) + b"\x00")


def test_newer_and_older_versions_are_read_as_the_reader_knows_them() -> None:
    newer = USER_PROTO.replace("message", "message First {} message").replace("= 2;", "= 2; bool vip = 3;")
    with running_registry() as running:
        registry = Registry(running.url)
        registry.register("u", USER_PROTO, "PROTOBUF")
        second = registry.register("u", newer, "PROTOBUF")
        own = plan(ProtobufSchema(USER_PROTO), "shop.User", registry)
        data = messages_of(ProtobufSchema(newer)).named("User")(id=1, name="a", vip=True).SerializeToString()
        assert one(own, header(second) + b"\x02\x02" + data) == {"id": 1, "name": "a"}
        later = plan(ProtobufSchema(newer), "shop.User", registry)
        assert one(later, header(1) + b"\x00\x08\x01") == {"id": 1, "name": "", "vip": False}
