"""The columns of a record, named and typed as Spark's Kafka connector has them."""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from braidlog.core.errors import UserError

_FIELDS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
_HEADERS = StructField(
    "headers", ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
)
_BY_NAME: Final = {field.name: field for field in (*_FIELDS, _HEADERS)}
# A record need not have these.
_OPTIONAL: Final = ("key", "value", "headers")


def record_schema(*, with_headers: bool) -> StructType:
    return StructType([*_FIELDS, _HEADERS] if with_headers else list(_FIELDS))


def check_schema(schema: StructType) -> None:
    """UserError unless every column of the schema is one that a record has, of the type that it has."""
    if not schema.fields:
        raise UserError(f"the schema has no columns; choose among {_said(_BY_NAME.values())}")
    for field in schema.fields:
        right = _BY_NAME.get(field.name)
        if right is None:
            raise UserError(
                f"records have no column {field.name!r}; a schema for the format 'braidlog' chooses among "
                f"{_said(_BY_NAME.values())}"
            )
        if _without_nullability(field.dataType) != _without_nullability(right.dataType):
            raise UserError(_wrong_type(field, right))
        if field.name in _OPTIONAL and not field.nullable:
            raise UserError(f"column {field.name} cannot be NOT NULL: records without one are read as null")
        if field.name == "headers" and not _may_lack_values(field.dataType):
            raise UserError("the value in column headers cannot be NOT NULL: headers without one are read as null")
    if len(set(schema.names)) < len(schema.names):
        raise UserError(f"the schema has a column twice: {', '.join(schema.names)}")


def _may_lack_values(headers: DataType) -> bool:
    assert isinstance(headers, ArrayType)
    assert isinstance(headers.elementType, StructType)
    return bool(headers.elementType["value"].nullable)


def _wrong_type(field: StructField, right: StructField) -> str:
    given, wanted = field.dataType.simpleString(), right.dataType.simpleString()
    message = f"column {field.name} is {wanted}, not {given}"
    if isinstance(field.dataType, StringType):
        return f"{message}; read it so and cast it: .schema('{field.name} {wanted}'), then CAST({field.name} AS STRING)"
    return f"{message}; give it that type in .schema(…), or leave .schema(…) out"


def _without_nullability(kind: DataType) -> str:
    """Types are alike when they say this alike: which parts may be null is ours to know."""
    return kind.simpleString()


def _said(fields: object) -> str:
    assert hasattr(fields, "__iter__")
    return ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in fields)
