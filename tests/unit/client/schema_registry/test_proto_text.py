"""The reader of .proto text, held against what protoc made of the same files."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from braidlog.client.schema_registry.proto_text import ProtoSyntaxError, parse_proto

GOOGLE = Path(next(iter(find_spec("google").submodule_search_locations)))  # type: ignore[union-attr,arg-type]
COMPILED = sorted(
    str(each.relative_to(GOOGLE.parent))
    for each in GOOGLE.rglob("*.proto")
    if each.with_name(each.stem + "_pb2.py").exists()
)


def described(message: Any) -> dict[str, Any]:
    """All that decoding depends on, of a message and those within it."""
    return {
        "fields": {
            field.name: (
                field.number,
                field.type,
                field.is_repeated,
                field.is_required,
                field.has_presence,
                field.json_name,
                field.message_type and field.message_type.full_name,
                field.enum_type and field.enum_type.full_name,
                field.containing_oneof and field.containing_oneof.name,
            )
            for field in message.fields
        },
        "map": message.GetOptions().map_entry,
        "oneofs": [each.name for each in message.oneofs],
        "enums": {each.name: [(value.name, value.number) for value in each.values] for each in message.enum_types},
        "messages": {each.full_name: described(each) for each in message.nested_types},
        "order": [each.name for each in message.nested_types],
    }


def with_imports(pool: Any, name: str, done: set[str]) -> None:
    """Into the pool: the file from its text where there is one, else as it was compiled."""
    if name in done:
        return
    done.add(name)
    path = GOOGLE.parent / name
    if path.exists():
        file = parse_proto(path.read_text(), name)
    else:
        file = FileDescriptorProto()
        import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR.CopyToProto(file)
    for each in file.dependency:
        with_imports(pool, each, done)
    pool.AddSerializedFile(file.SerializeToString())


def test_there_are_files_to_compare() -> None:
    assert len(COMPILED) > 20


@pytest.mark.parametrize("name", COMPILED)
def test_files_are_read_as_protoc_reads_them(name: str) -> None:
    pool = descriptor_pool.DescriptorPool()
    with_imports(pool, name, set())
    read, compiled = (
        pool.FindFileByName(name),
        import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR,
    )
    assert read.package == compiled.package
    assert list(read.message_types_by_name) == list(compiled.message_types_by_name)
    for message, other in zip(
        read.message_types_by_name.values(), compiled.message_types_by_name.values(), strict=True
    ):
        assert described(message) == described(other)
    assert {each: [(v.name, v.number) for v in kind.values] for each, kind in read.enum_types_by_name.items()} == {
        each: [(v.name, v.number) for v in kind.values] for each, kind in compiled.enum_types_by_name.items()
    }


ALL = r"""
// A comment with "quotes" and a brace {
syntax = 'proto2'; /* and
one of several lines */
package shop.orders;
import public "a.proto";
option java_package = "x" "y";
option (custom).thing = { a: 1, b: [1, 2], c { d: "}" } };
enum Kind { option allow_alias = true; UNKNOWN = 0; NEW = 1; FRESH = 0x1 [deprecated = true]; OLD = -2;
  reserved 5 to 7, "GONE"; }
message Order {
  extensions 100 to 199, 1000 to max [(verification) = DECLARATION];
  reserved 2, 15, 9 to 11; reserved "foo", 'bar';
  required int32 id = 1 [default = -5, json_name = "ID", (my.opt) = "]"];
  optional group Result = 3 { optional string url = 4; }
  repeated .shop.orders.Order.Line line_items = 010;
  map<string, Line> by_name = 6 [deprecated = true];
  oneof way { option (x) = 1; string mail = 12; Kind message = 13; }
  message Line { optional Order back = 1; enum Unit { KG = 0; } optional Unit unit = 2; }
  extend Order { optional int32 more = 126; }
  optional float optional = 20 [default = -inf];
}
extend google.protobuf.FieldOptions { optional string opt = 50000; }
service Shop { rpc Buy(stream Order) returns (Order) { option (http) = { get: "/x" }; } }
;
"""


def test_all_that_the_language_has() -> None:
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(parse_proto("package a;", "a.proto").SerializeToString())
    file = parse_proto(ALL, "all.proto")
    pool.AddSerializedFile(file.SerializeToString())
    order = pool.FindMessageTypeByName("shop.orders.Order")
    reported = described(order)
    assert list(file.public_dependency) == [0]
    assert {name: field[0] for name, field in reported["fields"].items()} == {
        "id": 1,
        "result": 3,
        "line_items": 8,
        "by_name": 6,
        "mail": 12,
        "message": 13,
        "optional": 20,
    }
    assert reported["fields"]["id"] == (1, 5, False, True, True, "ID", None, None, None)
    assert reported["fields"]["message"][7:] == ("shop.orders.Kind", "way")
    assert reported["order"] == ["Result", "ByNameEntry", "Line"]
    assert reported["messages"]["shop.orders.Order.Line"]["fields"]["unit"][7] == "shop.orders.Order.Line.Unit"
    assert [tuple(each) for each in order.extension_ranges] == [(100, 200), (1000, 2**29)]
    kind = pool.FindEnumTypeByName("shop.orders.Kind")
    assert [(each.name, each.number) for each in kind.values] == [("UNKNOWN", 0), ("NEW", 1), ("FRESH", 1), ("OLD", -2)]


def test_optional_fields_of_proto3_know_whether_they_are_there() -> None:
    pool = descriptor_pool.DescriptorPool()
    text = 'syntax = "proto3"; message M { optional int32 a = 1; int32 b = 2; oneof _a { int32 c = 3; } }'
    pool.AddSerializedFile(parse_proto(text, "m.proto").SerializeToString())
    fields = pool.FindMessageTypeByName("M").fields_by_name
    assert [(name, fields[name].has_presence) for name in "abc"] == [("a", True), ("b", False), ("c", True)]


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("message M {", "x.proto, line 1: a field, message, .* or extensions expected, not the end"),
        ('syntax = "proto3";\nmessage M {\n int32 = 1;\n}', "x.proto, line 3: a field's name expected, not '='"),
        ("message M { int32 a = 1.5; }", "a field's number expected, not '1.5'"),
        ("message M { int32 a = x; }", "a field's number expected"),
        ("message M { map<Other, int32> a = 1; }", "a map whose keys are numbers, bool or string expected"),
        ("message M { int32 a = 1 [x = {]; }", "another bracket expected"),
        ('edition = "2023"; message M {}', "is of '2023'; proto2 and proto3 are understood"),
        ("hello", "message, enum, import, package, option, extend or service expected, not 'hello'"),
        ("message M {}\n\x01", r"line 2: unexpected '\\x01'"),
        ("message M { " * 70, "messages that nest less deeply"),
        ("option x = 1", "';' expected, not the end of the file"),
        ("import 5;", "the name of a file expected"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_their_line(text: str, reported: str) -> None:
    with pytest.raises(ProtoSyntaxError, match=reported):
        parse_proto(text, "x.proto")
