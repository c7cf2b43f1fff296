"""A message of every type that Protobuf has."""

from __future__ import annotations

from braidlog.client.schema_registry.registry import ProtobufSchema

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
