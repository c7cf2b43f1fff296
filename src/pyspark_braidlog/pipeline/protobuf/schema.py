"""Protobuf messages as Spark types, and what reads their fields for Arrow.

int32, sint32, sfixed32          int
uint32, fixed32, int64, sint64,
sfixed64                         long
uint64, fixed64                  decimal(20, 0)
float, double, bool              float, double, boolean
string, bytes                    string, binary
enum                             string: the value's name, or its number where the schema has no name for it
message, group                   struct, null where it is not there
message without fields           boolean: true where it is there, else null
repeated, map                    array, map
google.protobuf.Timestamp        timestamp
google.protobuf.Duration         interval day to second
google.protobuf.Int32Value, …    the value itself, nullable
google.protobuf.Struct, Value,
ListValue                        string: their JSON

Fields that know whether they are there (optional ones, those of a oneof, all of proto2) are null where they are not;
others have their default then.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from operator import attrgetter
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.json_format import MessageToDict
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from braidlog.core.errors import UserError

Read = Callable[[Any], Any]

_NUMBERS: Final[Mapping[int, DataType]] = {
    FieldDescriptor.TYPE_INT32: IntegerType(),
    FieldDescriptor.TYPE_SINT32: IntegerType(),
    FieldDescriptor.TYPE_SFIXED32: IntegerType(),
    FieldDescriptor.TYPE_UINT32: LongType(),
    FieldDescriptor.TYPE_FIXED32: LongType(),
    FieldDescriptor.TYPE_INT64: LongType(),
    FieldDescriptor.TYPE_SINT64: LongType(),
    FieldDescriptor.TYPE_SFIXED64: LongType(),
    FieldDescriptor.TYPE_UINT64: DecimalType(20, 0),
    FieldDescriptor.TYPE_FIXED64: DecimalType(20, 0),
    FieldDescriptor.TYPE_FLOAT: FloatType(),
    FieldDescriptor.TYPE_DOUBLE: DoubleType(),
    FieldDescriptor.TYPE_BOOL: BooleanType(),
    FieldDescriptor.TYPE_STRING: StringType(),
    FieldDescriptor.TYPE_BYTES: BinaryType(),
    FieldDescriptor.TYPE_ENUM: StringType(),
}
_UNSIGNED_64: Final = (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64)
_PACKAGE: Final = "google.protobuf."
_WRAPPERS: Final = frozenset(
    f"{_PACKAGE}{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_FREE: Final = frozenset(f"{_PACKAGE}{kind}" for kind in ("Struct", "Value", "ListValue"))
_MICROS: Final = 1_000_000
_NANOS_IN_MICRO: Final = 1000


def spark_struct(message: Descriptor) -> StructType:
    if not message.fields:
        raise UserError(f"the Protobuf message {message.full_name} has no fields, so that there would be no columns")
    return _struct(message, ())


def _struct(message: Descriptor, within: tuple[str, ...]) -> StructType:
    if message.full_name in within:
        raise UserError(f"the Protobuf message {message.full_name} contains itself; Spark has no recursive types")
    inner = (*within, message.full_name)
    return StructType([StructField(each.name, _field(each, inner), _may_lack(each)) for each in message.fields])


def _may_lack(field: FieldDescriptor) -> bool:
    return bool(field.has_presence) and not field.is_required


def _field(field: FieldDescriptor, within: tuple[str, ...]) -> DataType:
    entry = _entry(field)
    if entry is not None:
        key, value = entry.fields_by_name["key"], entry.fields_by_name["value"]
        return MapType(_single(key, within), _single(value, within), False)
    kind = _single(field, within)
    return ArrayType(kind, False) if field.is_repeated else kind


def _single(field: FieldDescriptor, within: tuple[str, ...]) -> DataType:
    message = field.message_type
    if message is None:
        return _NUMBERS[field.type]
    name = message.full_name
    if name == f"{_PACKAGE}Timestamp":
        return TimestampType()
    if name == f"{_PACKAGE}Duration":
        return DayTimeIntervalType()
    if name in _WRAPPERS:
        return _single(message.fields_by_name["value"], within)
    if name in _FREE:
        return StringType()
    return _struct(message, within) if message.fields else BooleanType()


def _entry(field: FieldDescriptor) -> Descriptor | None:
    message = field.message_type
    return message if message is not None and message.GetOptions().map_entry else None


# Reading


def reading(message: Descriptor) -> Read:
    """From a message to what pyarrow takes for it; `spark_struct` was asked before, which refuses recursion."""
    fields = [(each.name, _read_field(each)) for each in message.fields]
    return lambda found: {name: read(found) for name, read in fields}


def _read_field(field: FieldDescriptor) -> Read:
    get = attrgetter(field.name)
    entry = _entry(field)
    if entry is not None:
        value_of = _conversion(entry.fields_by_name["value"])
        key_of = _conversion(entry.fields_by_name["key"]) or _as_it_is
        if value_of is None:
            return lambda found: [(key_of(key), value) for key, value in get(found).items()]
        convert_value = value_of
        return lambda found: [(key_of(key), convert_value(value)) for key, value in get(found).items()]
    convert = _conversion(field)
    if field.is_repeated:
        if convert is None:
            return lambda found: list(get(found))
        item = convert
        return lambda found: [item(each) for each in get(found)]
    name = field.name
    if not field.has_presence:
        return get if convert is None else _after(get, convert)
    if convert is None:
        return lambda found: get(found) if found.HasField(name) else None
    made = convert
    return lambda found: made(get(found)) if found.HasField(name) else None


def _as_it_is(value: Any) -> Any:
    return value


def _after(get: Read, convert: Read) -> Read:
    return lambda found: convert(get(found))


def _conversion(field: FieldDescriptor) -> Read | None:
    """The conversion of one value; None where Arrow takes it as it is."""
    if field.type in _UNSIGNED_64:
        return Decimal
    if field.enum_type is not None:
        names = {number: each.name for number, each in field.enum_type.values_by_number.items()}
        return lambda number: names.get(number) or str(number)
    message = field.message_type
    if message is None:
        return None
    name = message.full_name
    if name in (f"{_PACKAGE}Timestamp", f"{_PACKAGE}Duration"):
        return lambda found: found.seconds * _MICROS + _micros(found.nanos)
    if name in _WRAPPERS:
        inner = _conversion(message.fields_by_name["value"])
        return (lambda found: found.value) if inner is None else (lambda found: inner(found.value))
    if name in _FREE:
        return lambda found: json.dumps(MessageToDict(found), ensure_ascii=False)
    return reading(message) if message.fields else (lambda found: True)


def _micros(nanos: int) -> int:
    """Toward zero, as a duration's nanoseconds have the sign of its seconds."""
    return nanos // _NANOS_IN_MICRO if nanos >= 0 else -(-nanos // _NANOS_IN_MICRO)
