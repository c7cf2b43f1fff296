"""From the schema files to the texts of the generated modules."""

from __future__ import annotations

from pathlib import Path

from tools.protocol.emit import api_keys_text, module_text, registry_text
from tools.protocol.model import Schema
from tools.protocol.notation import read_schema

SCHEMAS = Path(__file__).parent / "schemas"
TARGET = Path(__file__).parent.parent.parent / "src" / "braidlog" / "wire" / "generated"


def schemas() -> list[Schema]:
    return [read_schema(path) for path in sorted(SCHEMAS.glob("*.txt"))]


def generated_files() -> dict[str, str]:
    """File name to text, for every module under `TARGET` but its `__init__`."""
    read = schemas()
    files = {f"{schema.module}.py": module_text(schema) for schema in read}
    files["registry.py"] = registry_text(read)
    files["api_keys.py"] = api_keys_text(read)
    return files
