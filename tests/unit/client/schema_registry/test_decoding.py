"""Bytes that Confluent's serializers wrote, read by what the registry says of them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from braidlog.client.schema_registry.decoding import RecordDecoder, Undecodable
from braidlog.client.schema_registry.registry import Registry, RegistryError
from braidlog.client.schema_registry.wire_format import header
from braidlog.core.errors import UserError
from support.registry_records import ORDER_PROTO, USER_PROTO, Captured, captured
from support.schema_registry import RunningRegistry, running_registry

CAPTURED = captured()


@pytest.fixture
def running() -> Iterator[RunningRegistry]:
    with running_registry() as running:
        running.contents.schemas.update(CAPTURED.schemas)
        running.contents.subjects.update(CAPTURED.subjects)
        yield running


def with_proto_text(contents: Captured) -> dict[int, dict[str, object]]:
    """As Confluent's registry hands them out, whatever they were registered as."""
    texts = {3: USER_PROTO, 4: ORDER_PROTO}
    return {number: {**each, "schema": texts.get(number, each["schema"])} for number, each in contents.schemas.items()}


@pytest.mark.parametrize("form", ["descriptors", "text"])
def test_what_confluents_serializers_wrote(running: RunningRegistry, form: str) -> None:
    if form == "text":
        running.contents.schemas.update(with_proto_text(CAPTURED))
    decoder = RecordDecoder(Registry(running.url))
    assert len(CAPTURED.records) == 6
    for record in CAPTURED.records:
        assert decoder.decode(record.data) == record.means, record.name
        # JSON can say it.
        assert json.loads(json.dumps(record.means, allow_nan=False)) == record.means


def test_each_schema_is_asked_for_once(running: RunningRegistry) -> None:
    decoder = RecordDecoder(Registry(running.url))
    for _ in range(3):
        for record in CAPTURED.records:
            decoder.decode(record.data)
    asked = running.contents.requests
    assert sorted(asked) == [
        "GET /schemas/ids/1",
        "GET /schemas/ids/2",
        "GET /schemas/ids/4",
        "GET /subjects/user.proto/versions/1",
    ]


def test_what_cannot_be_read_says_why(running: RunningRegistry) -> None:
    contents = running.contents
    contents.schemas[10] = {"schema": 'syntax = "proto3";', "schemaType": "PROTOBUF"}
    contents.schemas[11] = {"schema": "message M { int32 }", "schemaType": "PROTOBUF"}
    contents.schemas[12] = {"schema": 'import "no.proto"; message M {}', "schemaType": "PROTOBUF"}
    contents.schemas[13] = {"schema": "message M { Other o = 1; }", "schemaType": "PROTOBUF"}
    contents.schemas[14] = {"schema": '{"type": "record"}'}
    contents.schemas[15] = {"schema": '"text"', "schemaType": "THRIFT"}
    contents.schemas[16] = {"schema": "abc", "schemaType": "PROTOBUF"}
    decoder = RecordDecoder(Registry(running.url))
    for data, reported in (
        (b'{"id": 1}', "does not begin with a schema id: 7b 22 69 64 22"),
        (b"", "it is empty"),
        (header(99), "names the schema 99, which the registry does not have"),
        (header(1) + b"\x0e", "is not Avro of its schema 1: "),
        (CAPTURED.records[0].data + b"x", "is not Avro of its schema 1: 1 bytes follow it"),
        (header(2) + b"{", "is not JSON behind its schema id: "),
        (header(4), "ends within its message indexes"),
        (header(4) + b"\x02\x04", r"names the schema 4, which has no message at \[2\]"),
        (header(4) + b"\x02\x02\x0a\xff", "is not Protobuf of its schema 4: "),
        (header(10) + b"\x00", r"has no message at \[0\]"),
        (header(11) + b"\x00", "cannot be read: schema.proto, line 1: a field's name expected"),
        (header(12) + b"\x00", "imports no.proto, which is not among its references"),
        (header(13) + b"\x00", "is not valid: .*Other"),
        (header(14) + b"\x00", "names the schema 14, which cannot be used"),
        (header(15) + b"\x00", "names the schema 15, which is THRIFT"),
        (header(16) + b"\x00", "is neither .proto text nor a descriptor in base64"),
    ):
        with pytest.raises(Undecodable, match=reported):
            decoder.decode(data)


def test_a_registry_that_is_away_is_no_records_fault(running: RunningRegistry) -> None:
    running.contents.troubles += [(500, "{}")] * 3
    decoder = RecordDecoder(Registry(running.url))
    with pytest.raises(RegistryError, match="does not answer"):
        decoder.decode(CAPTURED.records[0].data)
    assert decoder.decode(CAPTURED.records[0].data) == CAPTURED.records[0].means


@pytest.mark.parametrize(
    ("number", "package", "modules"),
    [
        (0, "fastavro", ("fastavro", "braidlog.client.schema_registry.avro")),
        (2, "protobuf", ("google.protobuf", "google.protobuf.json_format")),
    ],
)
def test_a_package_that_is_not_installed_is_named(
    running: RunningRegistry, monkeypatch: pytest.MonkeyPatch, number: int, package: str, modules: tuple[str, ...]
) -> None:
    decoder = RecordDecoder(Registry(running.url))
    for each in modules:
        monkeypatch.setitem(sys.modules, each, None)
    with pytest.raises(UserError, match=rf"which needs {package}: pip install 'braidlog\[registry\]'"):
        decoder.decode(CAPTURED.records[number].data)
    # JSON Schema needs nothing.
    assert decoder.decode(CAPTURED.records[1].data) == CAPTURED.records[1].means
