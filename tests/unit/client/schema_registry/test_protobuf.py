from __future__ import annotations

from collections.abc import Iterator

import pytest

from braidlog.client.schema_registry.decoding import RecordDecoder
from braidlog.client.schema_registry.registry import Registry
from braidlog.client.schema_registry.wire_format import header
from support.registry_records import captured
from support.schema_registry import RunningRegistry, running_registry

CAPTURED = captured()


@pytest.fixture
def running() -> Iterator[RunningRegistry]:
    with running_registry() as running:
        running.contents.schemas.update(CAPTURED.schemas)
        running.contents.subjects.update(CAPTURED.subjects)
        yield running


def test_known_imports_need_no_reference(running: RunningRegistry) -> None:
    text = """
        syntax = "proto3";
        import "confluent/meta.proto";
        import "confluent/type/decimal.proto";
        import "google/protobuf/struct.proto";
        message M {
            confluent.type.Decimal cents = 1 [(confluent.field_meta).doc = "x"];
            google.protobuf.Value any = 2;
        }
    """
    running.contents.schemas[20] = {"schema": text, "schemaType": "PROTOBUF"}
    data = header(20) + b"\x00" + bytes.fromhex("0a 03 0a 01 05  12 02 20 01")
    assert RecordDecoder(Registry(running.url)).decode(data) == {
        "cents": {"value": "BQ==", "precision": 0, "scale": 0},
        "any": True,
    }


def test_entries_of_maps_are_not_counted_among_messages(running: RunningRegistry) -> None:
    """Confluent's registry puts them behind the messages that somebody wrote."""
    text = 'syntax = "proto3"; message M { map<string, int32> m = 1; message N { int32 a = 1; } }'
    running.contents.schemas[21] = {"schema": text, "schemaType": "PROTOBUF"}
    assert RecordDecoder(Registry(running.url)).decode(header(21) + b"\x04\x00\x00\x08\x05") == {"a": 5}
