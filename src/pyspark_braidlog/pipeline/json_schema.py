"""JSON Schema (the part of draft-07 that describes data rather than restricts it) as Spark types.

    string                      string; format date-time: timestamp, date: date; contentEncoding base64: binary
    integer, number, boolean    long, double, boolean
    array of items              array
    object with properties      struct; with additionalProperties alone: map of string
    ["x", "null"], anyOf null   x, nullable
    enum, const                 the type of their members
    $ref "#/…", allOf           what they point at; the properties together

`required` makes a field not nullable. Bounds, patterns and lengths are not checked by decoding.
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
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from braidlog.core.errors import UserError

_STRING_FORMATS: Final[Mapping[str, type[DataType]]] = {"date-time": TimestampType, "date": DateType}
_DEPTH: Final = 64


def json_schema_type(schema: Mapping[str, Any]) -> DataType:
    return _Reading(schema).typed(schema, "#", 0)[0]


class _Reading:
    """One document, which references point into."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def typed(self, schema: Any, where: str, depth: int) -> tuple[DataType, bool]:
        """The type, and whether null is allowed."""
        if depth > _DEPTH:
            raise UserError(f"the JSON Schema refers to itself at {where}; Spark has no recursive types")
        if not isinstance(schema, Mapping):
            raise UserError(f"the JSON Schema says nothing about the type at {where}; give it one")
        if "$ref" in schema:
            return self.typed(self._target(schema["$ref"], where), where, depth + 1)
        if "allOf" in schema:
            return self.typed(self._together(schema, where, depth), where, depth + 1)
        for choice in ("anyOf", "oneOf"):
            if choice in schema:
                return self._chosen(schema[choice], f"{where}/{choice}", depth)
        kind, nullable = self._kind(schema, where)
        return self._of_kind(kind, schema, where, depth), nullable

    def _kind(self, schema: Mapping[str, Any], where: str) -> tuple[str, bool]:
        kind = schema.get("type")
        if kind is None and "properties" in schema:
            return "object", False
        if kind is None and ("enum" in schema or "const" in schema):
            members = schema.get("enum", [schema.get("const")])
            kind = list(dict.fromkeys(_kind_of_member(member) for member in members))
        kinds: list[object] = kind if isinstance(kind, list) else [kind]
        named_types = [each for each in kinds if isinstance(each, str) and each != "null"]
        if sorted(named_types) == ["integer", "number"]:
            named_types = ["number"]
        if len(named_types) != 1:
            raise UserError(f"the JSON Schema must give one type at {where}, not {kind!r}")
        return named_types[0], "null" in kinds

    def _of_kind(self, kind: str, schema: Mapping[str, Any], where: str, depth: int) -> DataType:
        if kind == "string":
            if schema.get("contentEncoding") == "base64":
                return BinaryType()
            return _STRING_FORMATS.get(str(schema.get("format")), StringType)()
        if kind == "integer":
            return LongType()
        if kind == "number":
            return DoubleType()
        if kind == "boolean":
            return BooleanType()
        if kind == "array":
            element, nullable = self.typed(schema.get("items"), f"{where}/items", depth + 1)
            return ArrayType(element, nullable)
        if kind == "object":
            return self._object(schema, where, depth)
        raise UserError(f"the JSON Schema has the unknown type {kind!r} at {where}")

    def _object(self, schema: Mapping[str, Any], where: str, depth: int) -> DataType:
        properties = schema.get("properties")
        if properties is None:
            others, nullable = self.typed(
                schema.get("additionalProperties"), f"{where}/additionalProperties", depth + 1
            )
            return MapType(StringType(), others, nullable)
        required = set(schema.get("required", ()))
        fields = []
        for name, described in properties.items():
            kind, nullable = self.typed(described, f"{where}/properties/{name}", depth + 1)
            fields.append(StructField(name, kind, nullable or name not in required))
        return StructType(fields)

    def _chosen(self, choices: Any, where: str, depth: int) -> tuple[DataType, bool]:
        named_types = [choice for choice in choices if choice != {"type": "null"}]
        if len(named_types) != 1:
            raise UserError(f"the JSON Schema allows several types at {where}; Spark's columns have one")
        kind, nullable = self.typed(named_types[0], where, depth + 1)
        return kind, nullable or len(named_types) < len(choices)

    def _together(self, schema: Mapping[str, Any], where: str, depth: int) -> Mapping[str, Any]:
        properties: dict[str, Any] = dict(schema.get("properties", {}))
        required = list(schema.get("required", ()))
        if depth > _DEPTH:
            raise UserError(f"the JSON Schema refers to itself at {where}; Spark has no recursive types")
        for part in schema["allOf"]:
            for _ in range(_DEPTH):
                if not isinstance(part, Mapping) or "$ref" not in part:
                    break
                part = self._target(part["$ref"], where)
            else:
                raise UserError(f"the JSON Schema refers to itself at {where}; Spark has no recursive types")
            if isinstance(part, Mapping) and "allOf" in part:
                part = self._together(part, where, depth + 1)
            if not isinstance(part, Mapping) or "properties" not in part:
                if len(schema["allOf"]) == 1 and not properties and isinstance(part, Mapping):
                    return part
                raise UserError(f"the JSON Schema may join only objects by allOf, at {where}")
            properties.update(part["properties"])
            required += part.get("required", ())
        return {"type": "object", "properties": properties, "required": required}

    def _target(self, reference: Any, where: str) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise UserError(f"the JSON Schema refers to {reference!r} at {where}; only '#/…' of the same file is read")
        found: Any = self._document
        for step in reference[1:].split("/")[1:]:
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                raise UserError(f"the JSON Schema refers to {reference!r} at {where}, which it does not have")
            found = found[name]
        return found


def _kind_of_member(member: object) -> str:
    if member is None:
        return "null"
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string")):
        if isinstance(member, kind):
            return name
    return "object"
