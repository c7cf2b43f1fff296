"""The schema of what is in records, from wherever it is written down, as Spark's type.

    StructType                        as it is
    "id long, name string NOT NULL"   Spark's DDL
    Path or name of a file            .json (JSON Schema, or Spark's own JSON), .avsc (Avro), .ddl or .sql (DDL)
    dict                              what such a JSON file would hold

A field that is not nullable is one that a record must have; the decoders call a record without it malformed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from pyspark.sql.types import StructType

from braidlog.core.errors import UserError

Schema = StructType | str | Path | Mapping[str, Any]

_FILES: Final = (".json", ".avsc", ".ddl", ".sql")


def spark_schema(schema: Schema) -> StructType:
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, Mapping):
        return _from_json(schema, "the schema")
    path = schema_file(schema)
    if path is None:
        return _from_ddl(str(schema), "the schema")
    text = read_schema_file(path)
    if path.suffix in (".ddl", ".sql"):
        return _from_ddl(text, str(path))
    return _from_json(parsed_json(text, str(path)), str(path))


def schema_file(schema: str | Path) -> Path | None:
    """The file that is meant; None for text that is a schema itself."""
    if isinstance(schema, Path):
        return schema
    return Path(schema) if schema.endswith(_FILES) and "\n" not in schema else None


def read_schema_file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot read the schema file {path}: {reason}") from None


def parsed_json(text: str, where: str) -> Mapping[str, Any]:
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{where} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise UserError(f"{where} must hold a JSON object")
    return found


def _from_json(found: Mapping[str, Any], where: str) -> StructType:
    """Spark's, Avro's and JSON Schema's notations differ in what they call a structure."""
    kind = found.get("type")
    if kind == "struct" and "fields" in found:
        try:
            return StructType.fromJson(dict(found))
        except Exception as error:
            raise UserError(f"{where} is not a schema in Spark's JSON: {error}") from None
    if kind == "record":
        from pyspark_braidlog.pipeline.avro.schema import expanded, spark_type

        made = spark_type(expanded(found))
    else:
        from pyspark_braidlog.pipeline.json_schema import json_schema_type

        made = json_schema_type(found)
    if not isinstance(made, StructType):
        raise UserError(f"{where} describes {made.simpleString()}, but a record's columns come from a structure")
    return made


def _from_ddl(text: str, where: str) -> StructType:
    # Spark parses DDL in the JVM: with a session there is one.
    try:
        made = StructType.fromDDL(text)
    except Exception as error:
        first = (str(error).strip().splitlines() or ["unknown"])[0]
        raise UserError(
            f"{where} is neither the name of a {', '.join(_FILES)} file nor DDL such as 'id long, name string': {first}"
        ) from None
    assert isinstance(made, StructType)
    return made


def nullable(fields: StructType) -> StructType:
    """The same with nothing required: readers may not meet a null where the type forbids one."""
    return StructType.fromJson({**fields.jsonValue(), "fields": _loosened(fields.jsonValue()["fields"])})


def _loosened(described: object) -> object:
    if isinstance(described, dict):
        loose = {"nullable": True, "containsNull": True, "valueContainsNull": True}
        return {name: loose[name] if name in loose else _loosened(each) for name, each in described.items()}
    return [_loosened(each) for each in described] if isinstance(described, list) else described
