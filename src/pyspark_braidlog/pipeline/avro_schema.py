"""Avro schemas as Spark and Arrow types.

null, boolean, int, long         null, boolean, int, long
float, double, bytes, string     float, double, binary, string
record, array, map               struct, array, map of string
enum, fixed                      string, binary
union of X and null              X, nullable
union of several X, Y            struct of member0, member1, …: the one that is there, the others null
date                             date
time-millis, time-micros         long, in that unit (Spark's time type is not in Arrow's reach everywhere)
timestamp-millis, -micros        timestamp;  local-timestamp-…: timestamp_ntz
decimal (bytes or fixed)         decimal, where Spark's precision of 38 holds it
uuid                             string
duration and other logical types as what they are stored in
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from braidlog.core.errors import UserError

_PRIMITIVE: Final[Mapping[str, type[DataType]]] = {
    "null": NullType,
    "boolean": BooleanType,
    "int": IntegerType,
    "long": LongType,
    "float": FloatType,
    "double": DoubleType,
    "bytes": BinaryType,
    "string": StringType,
}
_LOGICAL: Final[Mapping[tuple[str, str], type[DataType]]] = {
    ("int", "date"): DateType,
    ("int", "time-millis"): LongType,
    ("long", "time-micros"): LongType,
    ("long", "timestamp-millis"): TimestampType,
    ("long", "timestamp-micros"): TimestampType,
    ("long", "local-timestamp-millis"): TimestampNTZType,
    ("long", "local-timestamp-micros"): TimestampNTZType,
}
_SPARK_PRECISION: Final = 38


def spark_type(schema: object) -> DataType:
    return _Reading().typed(schema, "")[0]


def spark_struct(schema: object) -> StructType:
    """Of a record; any other schema is a structure of one field, `value`."""
    kind, nullable = _Reading().typed(schema, "")
    return kind if isinstance(kind, StructType) else StructType([StructField("value", kind, nullable)])


class _Reading:
    """One schema; named types may be told once and used by name after that."""

    def __init__(self) -> None:
        self._named: dict[str, object] = {}
        self._open: list[str] = []

    def typed(self, schema: object, space: str) -> tuple[DataType, bool]:
        """The type, and whether null is allowed."""
        if isinstance(schema, list):
            return self._union(schema, space)
        if isinstance(schema, str):
            if schema in _PRIMITIVE:
                return _PRIMITIVE[schema](), schema == "null"
            return self._by_name(schema, space)
        if not isinstance(schema, Mapping) or "type" not in schema:
            raise UserError(f"the Avro schema has {schema!r} where a type should be")
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.typed(kind, space)
        if kind in ("record", "error", "enum", "fixed"):
            return self._declared(kind, schema, space), False
        if kind == "array":
            element, nullable = self.typed(schema["items"], space)
            return ArrayType(element, nullable), False
        if kind == "map":
            value, nullable = self.typed(schema["values"], space)
            return MapType(StringType(), value, nullable), False
        logical = str(schema.get("logicalType", ""))
        if kind == "bytes" and logical == "decimal":
            return _decimal(schema), False
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical](), False
        return self.typed(kind, space)

    def _declared(self, kind: str, schema: Mapping[str, Any], space: str) -> DataType:
        full = _full_name(str(schema.get("name", "")), str(schema.get("namespace", space)))
        self._named[full] = schema
        if kind == "enum":
            return StringType()
        if kind == "fixed":
            return _decimal(schema) if schema.get("logicalType") == "decimal" else BinaryType()
        if full in self._open:
            raise UserError(f"the Avro record {full} contains itself; Spark has no recursive types")
        self._open.append(full)
        inner = full.rpartition(".")[0]
        fields = []
        for field in schema.get("fields", ()):
            made, nullable = self.typed(field["type"], inner)
            fields.append(StructField(field["name"], made, nullable))
        self._open.pop()
        return StructType(fields)

    def _by_name(self, name: str, space: str) -> tuple[DataType, bool]:
        for full in (_full_name(name, space), name):
            if full in self._open:
                raise UserError(f"the Avro record {full} contains itself; Spark has no recursive types")
            if full in self._named:
                return self.typed(self._named[full], space)
        raise UserError(f"the Avro schema uses the type {name!r}, which it does not define before")

    def _union(self, branches: list[object], space: str) -> tuple[DataType, bool]:
        told = [branch for branch in branches if branch != "null" and branch != {"type": "null"}]
        if not told:
            return NullType(), True
        if len(told) == 1:
            return self.typed(told[0], space)[0], len(branches) > 1
        members = [StructField(f"member{number}", self.typed(each, space)[0]) for number, each in enumerate(told)]
        return StructType(members), len(told) < len(branches)


def _decimal(schema: Mapping[str, Any]) -> DataType:
    precision, scale = int(schema.get("precision", 0)), int(schema.get("scale", 0))
    if not 0 < precision <= _SPARK_PRECISION or not 0 <= scale <= precision:
        raise UserError(f"the Avro schema has a decimal of precision {precision} and scale {scale}; Spark's end at 38")
    return DecimalType(precision, scale)


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"
