"""Avro schemas as Spark types, and back.

null, boolean, int, long         void, boolean, int, long
float, double, bytes, string     float, double, binary, string
record, array, map               struct, array, map of string
enum, fixed                      string, binary
union of X and null              X, nullable
union of several X, Y            struct of member0, member1, …: the one that is there, the others null
date                             date
timestamp-millis, -micros        timestamp;  local-timestamp-…: timestamp_ntz
decimal (bytes or fixed)         decimal, where Spark's precision of 38 holds it
time-millis, time-micros         int, long: as they are stored
uuid, duration, others           string, binary, …: as they are stored
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
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
    ("long", "timestamp-millis"): TimestampType,
    ("long", "timestamp-micros"): TimestampType,
    ("long", "local-timestamp-millis"): TimestampNTZType,
    ("long", "local-timestamp-micros"): TimestampNTZType,
}
_NAMED: Final = ("record", "error", "enum", "fixed")
_SPARK_PRECISION: Final = 38
NULL: Final = {"type": "null"}

# Every type as an object, named types written out wherever they are used, a union as {"type": "union", "of": […]}.
Expanded = dict[str, Any]


def expanded(schema: object) -> Expanded:
    return _Names().expand(schema, "")


class _Names:
    """Named types are defined once and used by name after that."""

    def __init__(self) -> None:
        self._defined: dict[str, Expanded] = {}
        self._open: list[str] = []

    def expand(self, schema: object, space: str) -> Expanded:
        if isinstance(schema, list):
            return {"type": "union", "of": [self.expand(branch, space) for branch in schema]}
        if isinstance(schema, str):
            return {"type": schema} if schema in _PRIMITIVE else self._by_name(schema, space)
        if not isinstance(schema, Mapping) or "type" not in schema:
            raise UserError(f"the Avro schema has {schema!r} where a type should be")
        kind = schema["type"]
        if kind in _NAMED:
            return self._definition(schema, space)
        if kind == "array":
            return {"type": "array", "items": self.expand(_of(schema, "items"), space)}
        if kind == "map":
            return {"type": "map", "values": self.expand(_of(schema, "values"), space)}
        if kind in _PRIMITIVE:
            return {
                name: value for name, value in schema.items() if name in ("type", "logicalType", "precision", "scale")
            }
        return self.expand(kind, space)

    def _definition(self, schema: Mapping[str, Any], space: str) -> Expanded:
        full = full_name(str(_of(schema, "name")), str(schema.get("namespace") or space))
        if schema["type"] in ("enum", "fixed"):
            kept = ("type", "symbols", "size", "logicalType", "precision", "scale")
            made: Expanded = {name: schema[name] for name in kept if name in schema} | {"name": full}
        else:
            self._open.append(full)
            inner = full.rpartition(".")[0]
            fields = [
                {"name": _of(each, "name"), "type": self.expand(_of(each, "type"), inner)} for each in schema["fields"]
            ]
            self._open.pop()
            made = {"type": "record", "name": full, "fields": fields}
        self._defined[full] = made
        return made

    def _by_name(self, name: str, space: str) -> Expanded:
        for full in (full_name(name, space), name):
            if full in self._open:
                raise UserError(f"the Avro record {full} contains itself; Spark has no recursive types")
            if full in self._defined:
                return self._defined[full]
        raise UserError(f"the Avro schema uses the type {name!r}, which it does not define before")


def full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _of(schema: Mapping[str, Any], name: str) -> Any:
    if name not in schema:
        raise UserError(f"the Avro schema lacks {name!r} in {dict(schema)!r}")
    return schema[name]


def spark_type(schema: Expanded) -> DataType:
    kind = schema["type"]
    if kind == "union":
        members = [each for each in schema["of"] if each != NULL]
        if len(members) < 2:
            return spark_type(members[0]) if members else NullType()
        return StructType([StructField(f"member{number}", spark_type(each)) for number, each in enumerate(members)])
    if kind == "record":
        return StructType(
            [
                StructField(each["name"], spark_type(each["type"]), allows_null(each["type"]))
                for each in schema["fields"]
            ]
        )
    if kind == "array":
        return ArrayType(spark_type(schema["items"]), allows_null(schema["items"]))
    if kind == "map":
        return MapType(StringType(), spark_type(schema["values"]), allows_null(schema["values"]))
    logical = str(schema.get("logicalType", ""))
    if kind in ("bytes", "fixed") and logical == "decimal":
        return _decimal(schema)
    if kind in ("enum", "fixed"):
        return StringType() if kind == "enum" else BinaryType()
    return _LOGICAL.get((kind, logical), _PRIMITIVE[kind])()


def spark_struct(schema: Expanded) -> StructType:
    """The struct of a record; any other schema is a struct of one field, `value`."""
    kind = spark_type(schema)
    if isinstance(kind, StructType) and schema["type"] == "record":
        return kind
    return StructType([StructField("value", kind, allows_null(schema))])


def allows_null(schema: Expanded) -> bool:
    return schema == NULL or (schema["type"] == "union" and NULL in schema["of"])


def _decimal(schema: Mapping[str, Any]) -> DataType:
    precision, scale = int(schema.get("precision", 0)), int(schema.get("scale", 0))
    if not 0 < precision <= _SPARK_PRECISION or not 0 <= scale <= precision:
        raise UserError(
            f"the Avro schema has a decimal({precision}, {scale}); Spark's have a precision of 1 to {_SPARK_PRECISION}"
        )
    return DecimalType(precision, scale)


_FROM_SPARK: Final[Mapping[type[DataType], object]] = {
    BooleanType: "boolean",
    ByteType: "int",
    ShortType: "int",
    IntegerType: "int",
    LongType: "long",
    FloatType: "float",
    DoubleType: "double",
    BinaryType: "bytes",
    StringType: "string",
    DateType: {"type": "int", "logicalType": "date"},
    TimestampType: {"type": "long", "logicalType": "timestamp-micros"},
    TimestampNTZType: {"type": "long", "logicalType": "local-timestamp-micros"},
}


def avro_schema_of(fields: StructType, name: str) -> dict[str, Any]:
    """The schema that writes such rows; nullable fields are unions with null, whose default is null."""
    described: list[dict[str, Any]] = []
    for field in fields.fields:
        kind = _avro_type(field.dataType, f"{name}_{field.name}")
        if field.nullable:
            described.append({"name": field.name, "type": ["null", kind], "default": None})
        else:
            described.append({"name": field.name, "type": kind})
    return {"type": "record", "name": name, "fields": described}


def _avro_type(kind: DataType, name: str) -> object:
    if isinstance(kind, StructType):
        return avro_schema_of(kind, name)
    if isinstance(kind, ArrayType):
        return {"type": "array", "items": _maybe_null(_avro_type(kind.elementType, name), kind.containsNull)}
    if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
        return {"type": "map", "values": _maybe_null(_avro_type(kind.valueType, name), kind.valueContainsNull)}
    if isinstance(kind, DecimalType):
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    found = _FROM_SPARK.get(type(kind))
    if found is None:
        raise UserError(f"Avro has no type for {kind.simpleString()} ({name.replace('_', '.')}); cast it before")
    return found


def _maybe_null(kind: object, nullable: bool) -> object:
    return ["null", kind] if nullable else kind
