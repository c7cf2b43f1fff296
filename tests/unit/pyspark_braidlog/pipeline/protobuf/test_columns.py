"""Protobuf columns in Arrow, as workers decode them: types, presence, versions, registries, what is malformed."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from braidlog.client.schema_registry.protobuf import messages_of
from braidlog.client.schema_registry.registry import Registry
from pyspark_braidlog.pipeline.protobuf.columns import ProtobufReadPlan, decoded_array
from support.protobuf_types import TYPES


def plan(source: Any = TYPES, message: str = "types.All", registry: Registry | None = None) -> ProtobufReadPlan:
    return ProtobufReadPlan(source, message, registry, "value")


def decoded(plan: ProtobufReadPlan, *values: bytes | None) -> list[tuple[Any, str | None]]:
    made = decoded_array(plan, pa.array(values, type=pa.binary()))
    return [(each["value"], each["error"]) for each in made.to_pylist()]


def one(plan: ProtobufReadPlan, data: bytes) -> Any:
    ((value, error),) = decoded(plan, data)
    assert error is None
    return value


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
