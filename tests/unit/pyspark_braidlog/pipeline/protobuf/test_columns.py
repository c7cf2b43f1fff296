"""Protobuf columns in Arrow, as workers decode them: types, presence, versions, registries, what is malformed."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from braidlog.client.schema_registry.protobuf import messages_of
from braidlog.client.schema_registry.registry import ProtobufSchema, Registry, RegistryError
from braidlog.client.schema_registry.wire_format import header
from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.protobuf.columns import ProtobufReadPlan, decoded_array, messages
from pyspark_braidlog.pipeline.protobuf.records import _given
from pyspark_braidlog.pipeline.protobuf.schema import spark_struct
from support.registry_records import ORDER_PROTO, USER_PROTO, captured
from support.schema_registry import running_registry

TYPES = ProtobufSchema("""
syntax = "proto3";
package types;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/wrappers.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/empty.proto";
message All {
  int32 a = 1; sint32 b = 2; sfixed32 c = 3; uint32 d = 4; fixed32 e = 5; int64 f = 6; sint64 g = 7; sfixed64 h = 8;
  uint64 i = 9; fixed64 j = 10; float k = 11; double l = 12; bool m = 13; string n = 14; bytes o = 15;
  Color color = 16; repeated Color colors = 17; repeated uint64 longs = 18; repeated Point points = 19;
  map<int32, Point> by_number = 20; map<string, uint64> counts = 21; map<bool, string> words = 22;
  optional int32 maybe = 23; oneof one { string left = 24; Point right = 25; google.protobuf.Empty none = 26; }
  google.protobuf.Timestamp at = 27; google.protobuf.Duration took = 28; google.protobuf.UInt64Value large = 29;
  google.protobuf.StringValue text = 30; google.protobuf.Struct free = 31;
  repeated google.protobuf.Timestamp times = 32;
}
enum Color { RED = 0; GREEN = 5; }
message Point { int32 x = 1; }
message Loop { Loop next = 1; }
message Nothing {}
""")


def plan(source: Any = TYPES, message: str = "types.All", registry: Registry | None = None) -> ProtobufReadPlan:
    return ProtobufReadPlan(source, message, registry, "value")


def decoded(plan: ProtobufReadPlan, *values: bytes | None) -> list[tuple[Any, str | None]]:
    made = decoded_array(plan, pa.array(values, type=pa.binary()))
    return [(each["value"], each["error"]) for each in made.to_pylist()]


def one(plan: ProtobufReadPlan, data: bytes) -> Any:
    ((value, error),) = decoded(plan, data)
    assert error is None
    return value


def test_every_type_has_its_column() -> None:
    struct = spark_struct(messages_of(TYPES).named("All").DESCRIPTOR)
    assert struct.simpleString() == (
        "struct<a:int,b:int,c:int,d:bigint,e:bigint,f:bigint,g:bigint,h:bigint,i:decimal(20,0),j:decimal(20,0),k:float,"
        "l:double,m:boolean,n:string,o:binary,color:string,colors:array<string>,longs:array<decimal(20,0)>,"
        "points:array<struct<x:int>>,by_number:map<int,struct<x:int>>,counts:map<string,decimal(20,0)>,"
        "words:map<boolean,string>,maybe:int,left:string,right:struct<x:int>,none:boolean,at:timestamp,"
        "took:interval day to second,large:decimal(20,0),text:string,free:string,times:array<timestamp>>"
    )
    assert [each.name for each in struct.fields if each.nullable] == [
        "maybe", "left", "right", "none", "at", "took", "large", "text", "free"
    ]  # fmt: skip


def test_every_value_is_read() -> None:
    kind = messages_of(TYPES).named("All")
    message = kind(
        a=-1, b=-2, c=-3, d=2**32 - 1, e=5, f=-(2**63), g=-7, h=8, i=2**64 - 1, j=10, k=0.5, l=-0.25, m=True, n="Å",
        o=b"\x00\xff", color=5, colors=[0, 5, 7], longs=[2**64 - 1], counts={"c": 2**63}, words={True: "yes"}, maybe=0,
    )  # fmt: skip
    message.points.add(x=3)
    message.by_number[4].x = 5
    message.none.SetInParent()
    message.at.FromJsonString("1969-12-31T23:59:59.250Z")
    message.took.FromJsonString("-1.5s")
    message.large.value = 2**64 - 1
    message.text.SetInParent()
    message.free.update({"x": [1, None]})
    message.times.add(seconds=1, nanos=999)
    assert one(plan(), message.SerializeToString()) == {
        "a": -1, "b": -2, "c": -3, "d": 2**32 - 1, "e": 5, "f": -(2**63), "g": -7, "h": 8, "i": Decimal(2**64 - 1),
        "j": Decimal(10), "k": 0.5, "l": -0.25, "m": True, "n": "Å", "o": b"\x00\xff", "color": "GREEN",
        "colors": ["RED", "GREEN", "7"], "longs": [Decimal(2**64 - 1)], "points": [{"x": 3}],
        "by_number": [(4, {"x": 5})], "counts": [("c", Decimal(2**63))], "words": [(True, "yes")], "maybe": 0,
        "left": None, "right": None, "none": True,
        "at": datetime.datetime(1969, 12, 31, 23, 59, 59, 250_000, tzinfo=datetime.UTC),
        "took": datetime.timedelta(seconds=-1.5), "large": Decimal(2**64 - 1), "text": "", "free": '{"x": [1.0, null]}',
        "times": [datetime.datetime(1970, 1, 1, 0, 0, 1, tzinfo=datetime.UTC)],
    }  # fmt: skip


def test_what_is_not_there_is_null_or_its_default() -> None:
    value = one(plan(), b"")
    assert (value["a"], value["n"], value["color"], value["points"], value["counts"]) == (0, "", "RED", [], [])
    assert {value[name] for name in ("maybe", "left", "right", "none", "at", "took", "large", "text", "free")} == {None}


def test_required_fields_of_proto2_are_required() -> None:
    source = ProtobufSchema("message M { required int32 id = 1; optional string s = 2 [default = 'x']; }")
    assert one(plan(source, "M"), b"\x08\x05") == {"id": 5, "s": None}
    assert decoded(plan(source, "M"), b"") == [(None, "value lacks id, which the schema requires")]
    assert not spark_struct(messages_of(source).named("M").DESCRIPTOR)["id"].nullable


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


def test_schemas_from_files(tmp_path: Path) -> None:
    found = captured()
    record = next(each.data for each in found.records if each.name == "protobuf shop.Order")[7:]
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "order.proto").write_text(ORDER_PROTO)
    (tmp_path / "user.proto").write_text(USER_PROTO)
    (tmp_path / "order.desc").write_bytes(found.descriptor_set)
    places = (tmp_path / "shop" / "order.proto", str(tmp_path / "shop" / "order.proto"), tmp_path / "order.desc")
    values = [one(plan(_given(place), "shop.Order"), record) for place in places]
    assert values[0]["by"] == {"id": 2**53 + 1, "name": "Ann Ångström"}
    assert values[0] == values[1] == values[2]
    assert messages(found.descriptor_set).named("Order.Line").DESCRIPTOR.full_name == "shop.Order.Line"
    with pytest.raises(UserError, match="cannot read the descriptor file"):
        _given(tmp_path / "none.desc")


@pytest.mark.parametrize(
    ("message", "reported"), [("Loop", "types.Loop contains itself"), ("Nothing", "types.Nothing has no fields")]
)
def test_messages_that_spark_cannot_hold(message: str, reported: str) -> None:
    with pytest.raises(UserError, match=reported):
        spark_struct(messages_of(TYPES).named(message).DESCRIPTOR)
