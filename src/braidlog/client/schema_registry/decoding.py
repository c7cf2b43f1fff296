"""Bytes that name their schema, as what JSON can say: the three kinds of schema that registries have.

Avro          bytes and fixed in base64, decimals and UUIDs as text, dates and times in ISO 8601; of a union the
              value alone; NaN and the infinities as text
JSON Schema   the document itself; the schema is not held against it
Protobuf      by Protobuf's own JSON mapping, with the names of the .proto file; 64-bit integers are text there
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from braidlog.client.schema_registry.registry import RegisteredSchema, Registry, UnknownSchema
from braidlog.client.schema_registry.wire_format import NotFramed, framed, message_indexes
from braidlog.core.errors import UserError

_Read = Callable[[bytes, int], Any]
_NEEDED: Final = {"AVRO": "fastavro", "PROTOBUF": "protobuf"}


class Undecodable(ValueError):
    """The bytes cannot be read, and asking again would not help; the text goes on after "the value …"."""


class RecordDecoder:
    """Reads keys and values; keeps what it made of the schemas it met."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._readers: dict[int, _Read] = {}

    def decode(self, data: bytes) -> Any:
        """What the bytes mean, as far as JSON can say it.

        Raises Undecodable for bytes that are at fault, RegistryError where the registry cannot be asked.
        """
        try:
            schema_id, start = framed(data)
        except NotFramed as problem:
            raise Undecodable(str(problem)) from None
        read = self._readers.get(schema_id)
        if read is None:
            try:
                registered = self._registry.schema_by_id(schema_id)
            except UnknownSchema:
                raise Undecodable(f"names the schema {schema_id}, which the registry does not have") from None
            read = self._readers[schema_id] = _reader(registered)
        return read(data, start)


def _reader(registered: RegisteredSchema) -> _Read:
    try:
        if registered.kind == "AVRO":
            return _avro_reader(registered)
        if registered.kind == "PROTOBUF":
            return _protobuf_reader(registered)
    except ImportError:
        raise UserError(
            f"schema {registered.id} is {registered.kind}, which needs {_NEEDED[registered.kind]}: "
            "pip install 'braidlog[registry]'"
        ) from None
    if registered.kind == "JSON":
        return _read_json
    kinds = "only AVRO, JSON and PROTOBUF are read"
    raise Undecodable(f"names the schema {registered.id}, which is {registered.kind}: {kinds}")


def _read_json(data: bytes, start: int) -> Any:
    try:
        return json.loads(data[start:])
    except ValueError as problem:
        raise Undecodable(f"is not JSON behind its schema id: {problem}") from None


def _avro_reader(registered: RegisteredSchema) -> _Read:
    from braidlog.client.schema_registry.avro import NotOfItsSchema, parsed, read_avro

    try:
        schema = parsed(registered.schema)
    except UserError as problem:
        raise Undecodable(f"names the schema {registered.id}, which cannot be used: {problem}") from None

    def read(data: bytes, start: int) -> Any:
        try:
            return _plain(read_avro(data, start, schema))
        except NotOfItsSchema as problem:
            raise Undecodable(f"is not Avro of its schema {registered.id}: {problem}") from None

    return read


def _protobuf_reader(registered: RegisteredSchema) -> _Read:
    from google.protobuf.json_format import MessageToDict, SerializeToJsonError
    from google.protobuf.message import DecodeError

    from braidlog.client.schema_registry.protobuf import UnusableProtobuf, messages_of

    classes: dict[tuple[int, ...], Any] = {}

    def read(data: bytes, start: int) -> Any:
        try:
            path, begin = message_indexes(data, start)
            if path not in classes:
                classes[path] = messages_of(registered.schema).at(path)
            message = classes[path].FromString(data[begin:])
            return MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        except NotFramed as problem:
            raise Undecodable(str(problem)) from None
        except UnusableProtobuf as problem:
            raise Undecodable(f"names the schema {registered.id}, which {problem}") from None
        except (DecodeError, SerializeToJsonError, TypeError) as problem:
            # TypeError: an Any of a type that the schema does not have.
            raise Undecodable(f"is not Protobuf of its schema {registered.id}: {problem}") from None

    return read


def _plain(value: Any) -> Any:
    """What fastavro reads, in JSON's types."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, Decimal | UUID):
        return str(value)
    raise Undecodable(f"has a {type(value).__name__} in it, which JSON cannot say")
