"""What we write kio reads with the same values, and writes back as the same bytes; kio knows the 4.x versions."""

from __future__ import annotations

import datetime
import io
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import fields
from random import Random
from typing import Any

import pytest
from kio.index import load_entity_schema
from kio.schema.index import schema_name_map
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from tools.protocol.generate import schemas
from tools.protocol.model import Schema, Versions

from braidlog.core.slices import ByteSlice
from braidlog.wire.message import Message
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer
from support.wire_filling import filled

KINDS = {"Request": EntityType.request, "Response": EntityType.response}
ROUNDS = 4


def cases() -> Iterator[tuple[Schema, str, int]]:
    for schema in schemas():
        if schema.api is None or schema.module not in schema_name_map:
            continue
        for name in schema.messages:
            for version in schema_name_map[schema.module]:
                yield schema, name, version


CASES = list(cases())


def plain(value: Any) -> Any:
    """kio's richer types as what stands on the wire."""
    if isinstance(value, datetime.timedelta):
        return round(value / datetime.timedelta(milliseconds=1))
    if isinstance(value, datetime.datetime):
        return round(value.timestamp() * 1000)
    if isinstance(value, uuid.UUID):
        return value.bytes
    return value.value if hasattr(value, "value") and hasattr(value, "retriable") else value


def differences(schema: Schema, ours: Message, theirs: Any, version: int) -> Iterator[str]:
    name = type(ours).__name__
    present = [item for item in schema.structs[name].fields if item.versions.covers(Versions(version, version))]
    their_fields = fields(theirs)
    assert len(present) == len(their_fields), (name, [field.name for field in their_fields])
    for item, field in zip(present, their_fields, strict=True):
        expected_names = (item.name, item.name.removesuffix("_ms"), item.name.replace("_2pc", "2_pc"))
        assert field.name in expected_names, f"{name}.{item.name} is {field.name} there"
        one, other = getattr(ours, item.name), getattr(theirs, field.name)
        yield from compared(schema, f"{name}.{item.name}", one, other, version)


def compared(schema: Schema, where: str, ours: Any, theirs: Any, version: int) -> Iterator[str]:
    if isinstance(ours, Message):
        yield from differences(schema, ours, theirs, version)
    elif isinstance(ours, list):
        assert len(ours) == len(theirs), where
        for one, other in zip(ours, theirs, strict=True):
            yield from compared(schema, where, one, other, version)
    else:
        one = ours.tobytes() if isinstance(ours, ByteSlice) else ours
        other = plain(theirs)
        unset_id = one == bytes(16) and other is None
        unset_struct = one is None and theirs is not None and hasattr(theirs, "__dataclass_fields__")
        unset_time = one in (-1, 0) and other is None
        if one != other and not unset_id and not unset_struct and not unset_time:
            yield f"{where}: {one!r}, not {other!r}"


@pytest.mark.parametrize(("schema", "name", "version"), CASES, ids=[f"{name}-v{version}" for _, name, version in CASES])
def test_kio_agrees(schema: Schema, name: str, version: int) -> None:
    assert schema.api is not None
    kind = KINDS[name.removeprefix(schema.api.name)]
    entity = load_entity_schema(schema.module, version, kind)
    assert schema.structs[name].flexible.covers(Versions(version, version)) == entity.__flexible__
    for round_number in range(ROUNDS):
        random = Random(zlib.crc32(f"{name} {version} {round_number}".encode()))
        message = filled(schema, name, version, random)
        writer = Writer()
        message.encode(writer, version)
        written = writer.getvalue()
        theirs, size = entity_reader(entity)(written, 0)
        assert size == len(written)
        assert list(differences(schema, message, theirs, version)) == []
        back = io.BytesIO()
        entity_writer(entity)(back, theirs)
        assert back.getvalue().hex() == written.hex()
        again = type(message).decode(Reader(written), version)
        rewritten = Writer()
        again.encode(rewritten, version)
        assert rewritten.getvalue() == written


def test_our_versions_are_theirs_and_kafka_3_9s() -> None:
    for schema in schemas():
        if schema.api is not None and schema.module in schema_name_map:
            assert schema.api.versions.high == max(schema_name_map[schema.module]), schema.module
