"""Records as Confluent's serializers write them, with what they mean; fresh from confluent-kafka or from a capture.

confluent-kafka needs packages for its serializers that a test machine may lack: `captured()` has what they wrote once
(tests/interop/captures/schema_registry.json), and where they are there `written(…)` writes the same again.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

CAPTURE = Path(__file__).parent.parent / "interop" / "captures" / "schema_registry.json"

USER_PROTO = """\
syntax = "proto3";
package shop;
message User { int64 id = 1; string name = 2; }
"""
ORDER_PROTO = """\
syntax = "proto3";
package shop;
import "user.proto";
import "google/protobuf/timestamp.proto";
message Header { string source = 1; }
message Order {
  enum State { UNKNOWN = 0; PAID = 1; }
  message Line { string sku = 1; uint64 cents = 2; message Tag { string word = 1; } }
  int32 id = 1;
  User by = 2;
  State state = 3;
  repeated Line lines = 4;
  map<string, int32> counts = 5;
  google.protobuf.Timestamp at = 6;
  optional string note = 7;
  oneof paid_by { string card = 8; bool cash = 9; }
  bytes raw = 10;
}
"""
USER_AVRO = {"type": "record", "name": "User", "fields": [{"name": "n", "type": "string"}]}
AVRO = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "by", "type": ["null", USER_AVRO]},
        {"name": "cents", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "raw", "type": "bytes"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "int"}}},
        {"name": "share", "type": "double"},
    ],
}  # fmt: skip
AVRO_VALUE = {
    "id": 7,
    "by": {"n": "Ann Ångström"},
    "cents": Decimal("12.50"),
    "at": datetime(2026, 5, 4, 12, 0, 0, 250_000, tzinfo=UTC),
    "day": date(2026, 5, 4),
    "key": UUID("00000000-0000-0000-0000-000000000007"),
    "raw": b"\x00\xff",
    "state": "PAID",
    "tags": {"a": [1, 2]},
    "share": float("nan"),
}
AVRO_JSON = {
    "id": 7,
    "by": {"n": "Ann Ångström"},
    "cents": "12.50",
    "at": "2026-05-04T12:00:00.250000Z",
    "day": "2026-05-04",
    "key": "00000000-0000-0000-0000-000000000007",
    "raw": "AP8=",
    "state": "PAID",
    "tags": {"a": [1, 2]},
    "share": "NaN",
}
JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "title": "Order",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "name": {"type": "string"}},
}
JSON_VALUE = {"id": 7, "name": "Ann Ångström"}
ORDER = {
    "id": 7,
    "by": {"id": "9007199254740993", "name": "Ann Ångström"},
    "state": "PAID",
    "lines": [{"sku": "a", "cents": "18446744073709551615"}, {"sku": "b", "cents": "0"}],
    "counts": {"x": 1},
    "at": "2026-05-04T12:00:00.250Z",
    "note": "",
    "card": "visa",
    "raw": "AP8=",
}


class Written(NamedTuple):
    """One record's value, and what `braidlog consume` is to print of it."""

    name: str
    data: bytes
    means: Any


class Captured(NamedTuple):
    # What the registry held: schemas by id.
    schemas: dict[int, dict[str, Any]]
    subjects: dict[str, list[int]]
    records: list[Written]
    # protoc's own descriptors of the two .proto files.
    descriptor_set: bytes


def captured() -> Captured:
    found = json.loads(CAPTURE.read_text())
    return Captured(
        {int(number): each for number, each in found["schemas"].items()},
        found["subjects"],
        [Written(each["name"], bytes.fromhex(each["hex"]), each["means"]) for each in found["records"]],
        base64.b64decode(found["descriptor_set"]),
    )


def written(url: str, descriptor_set: bytes) -> list[Written]:
    """By confluent-kafka's serializers; raises ImportError where a package that these need is not installed."""
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.json_format import ParseDict
    from google.protobuf.message_factory import GetMessageClass

    client = SchemaRegistryClient({"url": url})
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(descriptor_set).file:
        pool.AddSerializedFile(file.SerializeToString())

    def context(topic: str) -> SerializationContext:
        return SerializationContext(topic, MessageField.VALUE)

    found = [
        Written("avro", AvroSerializer(client, json.dumps(AVRO))(AVRO_VALUE, context("avro")), AVRO_JSON),
        Written("json", JSONSerializer(json.dumps(JSON_SCHEMA), client)(JSON_VALUE, context("json")), JSON_VALUE),
    ]
    for name, means in (
        ("shop.Order", ORDER),
        ("shop.Header", {"source": "web"}),
        ("shop.Order.Line", {"sku": "a", "cents": "1"}),
        ("shop.Order.Line.Tag", {"word": "w"}),
    ):
        kind = GetMessageClass(pool.FindMessageTypeByName(name))
        serialize = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
        found.append(Written(f"protobuf {name}", serialize(ParseDict(means, kind()), context(f"proto-{name}")), means))
    return found
