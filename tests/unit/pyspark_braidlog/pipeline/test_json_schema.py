"""JSON Schema to Spark types."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.core.errors import UserError
from pyspark_braidlog.pipeline.json_schema import json_schema_type


def ddl(schema: dict[str, Any]) -> str:
    return json_schema_type(schema).simpleString()


def properties(**described: Any) -> dict[str, Any]:
    return {"type": "object", "properties": described}


@pytest.mark.parametrize(
    ("described", "expected"),
    [
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": "string", "format": "email"}, "string"),
        ({"type": "string", "contentEncoding": "base64"}, "binary"),
        ({"type": "integer"}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"enum": ["a", "b", None]}, "string"),
        ({"const": 3}, "bigint"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "map<string,double>"),
        (properties(city={"type": "string"}), "struct<city:string>"),
        ({"properties": {"zip": {"type": "integer"}}}, "struct<zip:bigint>"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"oneOf": [{"type": "string"}]}, "string"),
        ({"$ref": "#/definitions/money"}, "struct<cents:bigint>"),
        (
            {"allOf": [{"$ref": "#/definitions/money"}, properties(unit={"type": "string"})]},
            "struct<cents:bigint,unit:string>",
        ),
        ({"allOf": [{"type": "string"}]}, "string"),
    ],
)
def test_types(described: dict[str, Any], expected: str) -> None:
    schema = properties(it=described) | {"definitions": {"money": properties(cents={"type": "integer"})}}
    assert ddl(schema) == f"struct<it:{expected}>"


def test_what_is_required_may_not_be_null() -> None:
    kind = json_schema_type(
        properties(a={"type": "integer"}, b={"type": "integer"}, c={"type": ["integer", "null"]})
        | {"required": ["a", "c"]}
    )
    assert [field["nullable"] for field in kind.jsonValue()["fields"]] == [False, True, True]


@pytest.mark.parametrize(
    ("described", "message"),
    [
        ({"type": ["string", "integer"]}, "must give one type at #/properties/it"),
        ({}, "must give one type at #/properties/it"),
        ({"type": "array"}, "says nothing about the type at #/properties/it/items"),
        ({"type": "object"}, "says nothing about the type at #/properties/it/additionalProperties"),
        ({"type": "text"}, "unknown type 'text' at #/properties/it"),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, "several types at #/properties/it/anyOf"),
        ({"$ref": "other.json"}, "only '#/…' of the same file"),
        ({"$ref": "#/definitions/none"}, "which it does not have"),
        ({"$ref": "#/properties/it"}, "refers to itself"),
        (properties(inner={"$ref": "#"}), "refers to itself"),
        ({"allOf": [{"$ref": "#/properties/it/me"}], "me": {"$ref": "#/properties/it/me"}}, "refers to itself"),
        ({"allOf": [{"type": "string"}, {"type": "string"}]}, "join only objects"),
    ],
)
def test_what_cannot_be_a_column_is_named(described: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as refused:
        ddl(properties(it=described))
    assert message in str(refused.value)
