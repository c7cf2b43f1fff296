"""Columns of Avro bytes to columns of structures and back, in Arrow; what runs in Spark's Python workers."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import fastavro
import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_type

from braidlog.client.schema_registry.avro import parsed, reason
from braidlog.client.schema_registry.registry import Registry, UnknownSchema
from braidlog.client.schema_registry.wire_format import NotFramed, framed
from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.arrow_decoding import VALUE, decoded_structs
from pyspark_braidlog.pipeline.avro.schema import Expanded, expanded, spark_struct
from pyspark_braidlog.pipeline.avro.values import (
    arrow_conversion,
    avro_conversion,
    has_unions,
    in_units_of,
    without_logical_types,
)
from pyspark_braidlog.pipeline.schemas import nullable

_Read = Callable[[io.BytesIO], Any]


class AvroReadPlan(NamedTuple):
    """What a worker has to know: the schema as JSON text, and the registry where bodies are framed."""

    schema: str
    registry: Registry | None
    column: str


def decoded_array(plan: AvroReadPlan, values: pa.Array) -> pa.StructArray:
    """A structure of `value` and `error` for each of the values."""
    return _decoder(plan).decoded(values)


@lru_cache(maxsize=64)
def _decoder(plan: AvroReadPlan) -> _Decoder:
    return _Decoder(plan)


class _Decoder:
    """One reader's schema; writers' schemas are asked for as their ids are met."""

    def __init__(self, plan: AvroReadPlan) -> None:
        self._plan = plan
        schema = _loaded(plan.schema)
        expanded_schema = expanded(schema)
        self._type = to_arrow_type(nullable(spark_struct(expanded_schema)), timezone="UTC")
        self._named = has_unions(expanded_schema)
        self._told = expanded_schema
        self._wrapped = expanded_schema["type"] != "record"
        self._reader = parsed(without_logical_types(schema))
        self._writers: dict[int, _Read] = {}
        self._own = self._reading(self._reader, None, expanded_schema)

    def decoded(self, values: pa.Array) -> pa.StructArray:
        return decoded_structs(values, self._one, self._type, self._plan.column)

    def _one(self, data: bytes) -> tuple[Any, str | None]:
        column = self._plan.column
        read = self._own
        body = io.BytesIO(data)
        if self._plan.registry is not None:
            try:
                schema_id, start = framed(data)
            except NotFramed as error:
                return None, f"{column} {error}"
            try:
                read = self._writer(schema_id, self._plan.registry)
            except UnknownSchema as error:
                return None, f"{column}: {error}"
            except _Unfit as error:
                return None, f"{column} was written with schema {schema_id}, {error}"
            body.seek(start)
        try:
            value = read(body)
        except Exception as error:
            # fastavro raises whatever the bytes led it to.
            return None, f"{column} is not Avro of its schema: {reason(error)}"
        left = len(data) - body.tell()
        if left:
            return None, f"{column} is not Avro of its schema: {left} bytes follow it"
        return {VALUE: value} if self._wrapped else value, None

    def _writer(self, schema_id: int, registry: Registry) -> _Read:
        found = self._writers.get(schema_id)
        if found is None:
            registered = registry.schema_by_id(schema_id)
            if registered.kind != "AVRO":
                raise _Unfit(f"which is {registered.kind}, not Avro")
            try:
                writer = parsed(without_logical_types(registered.schema))
            except UserError as error:
                raise _Unfit(f"which cannot be used: {error}") from None
            try:
                expanded_schema = in_units_of(expanded(registered.schema), self._told)
            except UserError:
                # Spark could not hold it, for it contains itself; the part that is read it can.
                expanded_schema = self._told
            found = self._writers[schema_id] = self._reading(writer, self._reader, expanded_schema)
        return found

    def _reading(self, writer: Any, reader: Any, expanded_schema: Expanded) -> _Read:
        named = self._named
        same = reader is None or writer == reader
        convert = arrow_conversion(expanded_schema)

        def read(body: io.BytesIO) -> Any:
            value: Any = fastavro.schemaless_reader(body, writer, None if same else reader, return_named_type=named)
            return value if convert is None else convert(value)

        return read


class _Unfit(Exception):
    """The writer's schema is of no use to this reader."""


class WritePlan(NamedTuple):
    """`header` is the magic byte and the schema's id, or nothing where there is no registry."""

    schema: str
    header: bytes
    column: str


def encoded_array(plan: WritePlan, rows: pa.Array) -> pa.Array:
    """Avro bytes of each structure; null of null."""
    schema, convert, wrapped = _encoder(plan)
    out = io.BytesIO()
    made: list[bytes | None] = []
    for row in rows.to_pylist():
        if row is None:
            made.append(None)
            continue
        out.seek(0)
        out.truncate()
        out.write(plan.header)
        try:
            value = row[VALUE] if wrapped else row
            fastavro.schemaless_writer(out, schema, value if convert is None else convert(value))
        except Exception as error:
            raise UserError(f"a row does not fit the Avro schema of {plan.column}: {reason(error)}") from None
        made.append(out.getvalue())
    return pa.array(made, type=pa.binary())


@lru_cache(maxsize=64)
def _encoder(plan: WritePlan) -> tuple[Any, Callable[[Any], Any] | None, bool]:
    schema = _loaded(plan.schema)
    expanded_schema = expanded(schema)
    return parsed(schema), avro_conversion(expanded_schema), expanded_schema["type"] != "record"


def _loaded(text: str) -> Any:
    return json.loads(text)
