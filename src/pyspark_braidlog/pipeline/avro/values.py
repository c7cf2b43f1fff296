"""Between what fastavro reads and writes and what Arrow takes and gives, where the two differ.

A conversion is None where there is nothing to do, so that most fields cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark_braidlog.pipeline.avro.schema import NULL, Expanded

Conversion = Callable[[Any], Any]
_THOUSAND: Final = 1000
_TIMES: Final = ("timestamp-millis", "timestamp-micros")
_NAMED: Final = ("record", "enum", "fixed")
_PYTHON: Final[Mapping[str, Any]] = {
    "boolean": bool,
    "int": int,
    "long": int,
    "float": float,
    "double": float,
    "bytes": bytes,
    "string": str,
    "array": list,
    "map": dict,
}


def without_logical_types(schema: object) -> object:
    """Stored numbers are what Arrow takes for times; only decimals are fastavro's to make."""
    if isinstance(schema, list):
        return [without_logical_types(each) for each in schema]
    if not isinstance(schema, Mapping):
        return schema
    drop = isinstance(schema.get("type"), str) and schema.get("logicalType") != "decimal"
    # A default is data, whatever its members are called.
    return {
        name: value if name == "default" else without_logical_types(value)
        for name, value in schema.items()
        if not (drop and name == "logicalType")
    }


def has_unions(schema: Expanded) -> bool:
    """Whether a union has several members: then fastavro must name the one it read."""
    kind = schema["type"]
    if kind == "union":
        members = [each for each in schema["of"] if each != NULL]
        return len(members) > 1 or any(has_unions(each) for each in members)
    if kind == "record":
        return any(has_unions(each["type"]) for each in schema["fields"])
    inner = schema.get("items") or schema.get("values")
    return inner is not None and has_unions(inner)


def in_units_of(writer: Expanded, reader: Expanded) -> Expanded:
    """The reader's schema with times in the writer's units: Avro's rules of resolution leave numbers as they are."""
    kind = reader["type"]
    if kind == "union":
        return {**reader, "of": [in_units_of(writer, each) for each in reader["of"]]}
    if writer["type"] == "union":
        same = [each for each in writer["of"] if (each["type"], each.get("name")) == (kind, reader.get("name"))]
        return in_units_of(same[0], reader) if same else reader
    if writer["type"] != kind:
        return reader
    if kind == "record":
        theirs = {each["name"]: each["type"] for each in writer["fields"]}
        fields = [
            {**each, "type": in_units_of(theirs.get(each["name"], each["type"]), each["type"])}
            for each in reader["fields"]
        ]
        return {**reader, "fields": fields}
    for inner in ("items", "values"):
        if inner in reader:
            return {**reader, inner: in_units_of(writer[inner], reader[inner])}
    both = (str(each.get("logicalType", "")) for each in (writer, reader))
    if kind == "long" and all(each.endswith(_TIMES) for each in both):
        return {**reader, "logicalType": writer["logicalType"]}
    return reader


def arrow_conversion(schema: Expanded) -> Conversion | None:
    """From what fastavro read, with `return_named_type` where `has_unions`, to what pyarrow takes."""
    return _reading(schema, has_unions(schema))


def _reading(schema: Expanded, named: bool) -> Conversion | None:
    kind = schema["type"]
    if kind in _NAMED:
        fields = schema["fields"] if kind == "record" else ()
        inner = _in_fields([(each["name"], _reading(each["type"], named)) for each in fields])
        # The writer may have had a union here, and fastavro names its member.
        return (lambda value: _applied(inner, _bare(value))) if named else inner
    if kind == "array":
        item = _reading(schema["items"], named)
        return None if item is None else lambda values: [item(value) for value in values]
    if kind == "map":
        value_of = _reading(schema["values"], named)
        if value_of is None:
            return lambda entries: list(entries.items())
        return lambda entries: [(name, value_of(value)) for name, value in entries.items()]
    if kind == "long" and str(schema.get("logicalType", "")).endswith("timestamp-millis"):
        return lambda value: value * _THOUSAND
    if kind == "union":
        return _of_union(schema, named)
    return None


def _bare(value: Any) -> Any:
    return value[1] if isinstance(value, tuple) else value


def _of_union(schema: Expanded, named: bool) -> Conversion | None:
    members = [each for each in schema["of"] if each != NULL]
    conversions = [_reading(each, named) for each in members]
    if len(members) == 1:
        inner = conversions[0]
        return None if inner is None else lambda value: None if value is None else inner(value)
    if not members:
        return None
    names = [f"member{number}" for number in range(len(members))]

    def member(value: Any) -> dict[str, Any] | None:
        if value is None:
            return None
        number, value = _member_read(members, value)
        return {names[number]: _applied(conversions[number], value)}

    return member


def _member_read(members: list[Expanded], value: Any) -> tuple[int, Any]:
    """Which member a value is of: by name, or by its Python type."""
    if isinstance(value, tuple):
        for number, member in enumerate(members):
            if member.get("name") == value[0]:
                return number, value[1]
    for number, member in enumerate(members):
        # Not named where the writer had no union here; a map may be meant by a dict, but not of just these names.
        if member["type"] == "record" and isinstance(value, dict) and value.keys() == _field_names(member):
            return number, value
    for number, member in enumerate(members):
        kind = member["type"]
        if kind in ("bytes", "fixed") and member.get("logicalType") == "decimal" and hasattr(value, "as_tuple"):
            return number, value
        expected = _PYTHON.get(kind)
        if expected is None or not isinstance(value, expected) or (isinstance(value, bool) and kind != "boolean"):
            continue
        if kind != "int" or value.bit_length() < 32 or value == -(2**31):
            return number, value
    for number, member in enumerate(members):
        if (isinstance(value, str) and value in member.get("symbols", ())) or (
            isinstance(value, bytes) and len(value) == member.get("size")
        ):
            return number, value
    raise ValueError(f"no member of the union is of {type(value).__name__}")


def _field_names(record: Expanded) -> set[str]:
    return {each["name"] for each in record["fields"]}


def avro_conversion(schema: Expanded) -> Conversion | None:
    """From a row as Arrow gives it (maps as pairs, unions as structures) to what fastavro writes."""
    kind = schema["type"]
    if kind == "record":
        return _in_fields([(each["name"], avro_conversion(each["type"])) for each in schema["fields"]])
    if kind == "array":
        item = avro_conversion(schema["items"])
        return None if item is None else lambda values: [item(value) for value in values]
    if kind == "map":
        value_of = avro_conversion(schema["values"])
        return lambda entries: {name: _applied(value_of, value) for name, value in entries}
    if kind != "union":
        return None
    members = [each for each in schema["of"] if each != NULL]
    conversions = [avro_conversion(each) for each in members]
    if len(members) == 1:
        inner = conversions[0]
        return None if inner is None else lambda value: None if value is None else inner(value)

    def chosen(value: Mapping[str, Any] | None) -> Any:
        if value is None:
            return None
        for number, member in enumerate(members):
            found = value[f"member{number}"]
            if found is not None:
                made = _applied(conversions[number], found)
                return (member["name"], made) if "name" in member else made
        return None

    return chosen


def _in_fields(fields: list[tuple[str, Conversion | None]]) -> Conversion | None:
    """Touches only the fields that have something to do, in the dict that is there."""
    changing = [(name, conversion) for name, conversion in fields if conversion is not None]
    if not changing:
        return None

    def convert(record: dict[str, Any]) -> dict[str, Any]:
        for name, conversion in changing:
            value = record[name]
            if value is not None:
                record[name] = conversion(value)
        return record

    return convert


def _applied(conversion: Conversion | None, value: Any) -> Any:
    return value if conversion is None else conversion(value)
