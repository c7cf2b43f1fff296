"""Columns of Protobuf bytes to columns of structures, in Arrow; what runs in Spark's Python workers."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import pyarrow as pa
from google.protobuf.message import DecodeError
from pyspark.sql.pandas.types import to_arrow_type

from braidlog.client.schema_registry.protobuf import Messages, UnusableProtobuf, messages_of, messages_of_set
from braidlog.client.schema_registry.registry import ProtobufSchema, Registry, UnknownSchema
from braidlog.client.schema_registry.wire_format import NotFramed, framed, message_indexes
from pyspark_braidlog.pipeline.arrow_decoding import decoded_structs
from pyspark_braidlog.pipeline.protobuf.schema import reading, spark_struct
from pyspark_braidlog.pipeline.schemas import nullable

# A file with its imports, or a set of descriptors.
Source = ProtobufSchema | bytes


def messages(source: Source) -> Messages:
    return messages_of_set(source) if isinstance(source, bytes) else messages_of(source)


class ProtobufReadPlan(NamedTuple):
    """What a worker has to know; `message` is a full name, and bodies are framed where there is a registry."""

    source: Source
    message: str
    registry: Registry | None
    column: str


def decoded_array(plan: ProtobufReadPlan, values: pa.Array) -> pa.StructArray:
    """A structure of `value` and `error` for each of the values."""
    decoder = _decoder(plan)
    return decoded_structs(values, decoder.one, decoder.type, plan.column)


@lru_cache(maxsize=64)
def _decoder(plan: ProtobufReadPlan) -> _Decoder:
    return _Decoder(plan)


class _Decoder:
    """The reader's message reads all bytes: that is how Protobuf's versions get along with each other.

    The schema that a record names says only which of its messages was written.
    """

    def __init__(self, plan: ProtobufReadPlan) -> None:
        self._plan = plan
        self._class = messages(plan.source).named(plan.message)
        descriptor = self._class.DESCRIPTOR
        self._read = reading(descriptor)
        self.type = to_arrow_type(nullable(spark_struct(descriptor)), timezone="UTC")
        self._schemas: dict[int, Messages] = {}
        # Of the messages that were written, by schema and indexes.
        self._names: dict[tuple[int, tuple[int, ...]], str] = {}

    def one(self, data: bytes) -> tuple[Any, str | None]:
        column = self._plan.column
        start = 0
        if self._plan.registry is not None:
            try:
                schema_id, start = framed(data)
                written = self._schema(schema_id, self._plan.registry)
                path, start = message_indexes(data, start)
                name = self._name(schema_id, written, path)
            except NotFramed as error:
                return None, f"{column} {error}"
            except UnknownSchema as error:
                return None, f"{column}: {error}"
            except UnusableProtobuf as error:
                return None, f"{column} was written with schema {schema_id}, which {error}"
            if name != self._plan.message:
                return None, f"{column} is a {name}, not a {self._plan.message}"
        try:
            message = self._class.FromString(data[start:])
            if not message.IsInitialized():
                lacking = ", ".join(message.FindInitializationErrors()[:5])
                return None, f"{column} lacks {lacking}, which the schema requires"
            return self._read(message), None
        except (DecodeError, UnicodeDecodeError) as error:
            return None, f"{column} is not Protobuf of its schema: {' '.join(str(error).split())}"

    def _schema(self, schema_id: int, registry: Registry) -> Messages:
        found = self._schemas.get(schema_id)
        if found is None:
            registered = registry.schema_by_id(schema_id)
            if registered.kind != "PROTOBUF":
                raise UnusableProtobuf(f"is {registered.kind}, not Protobuf")
            found = self._schemas[schema_id] = messages_of(registered.schema)
        return found

    def _name(self, schema_id: int, written: Messages, path: tuple[int, ...]) -> str:
        found = self._names.get((schema_id, path))
        if found is None:
            found = self._names[schema_id, path] = str(written.at(path).DESCRIPTOR.full_name)
        return found
