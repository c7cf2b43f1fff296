from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from braidlog.client.schema_registry.protobuf import messages_of
from braidlog.client.schema_registry.registry import ProtobufSchema, Registry
from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.protobuf.columns import ProtobufReadPlan, decoded_array, messages
from pyspark_braidlog.pipeline.protobuf.records import _given
from pyspark_braidlog.pipeline.protobuf.schema import spark_struct
from support.protobuf_types import TYPES
from support.registry_records import ORDER_PROTO, USER_PROTO, captured


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


def test_required_fields_of_proto2_are_required() -> None:
    source = ProtobufSchema("message M { required int32 id = 1; optional string s = 2 [default = 'x']; }")
    assert one(plan(source, "M"), b"\x08\x05") == {"id": 5, "s": None}
    assert decoded(plan(source, "M"), b"") == [(None, "value lacks id, which the schema requires")]
    assert not spark_struct(messages_of(source).named("M").DESCRIPTOR)["id"].nullable


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
