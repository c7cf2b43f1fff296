"""Avro by fastavro: schemas checked, and one record's bytes read as the schema that wrote them says."""

from __future__ import annotations

import io
from typing import Any, Final

import fastavro

from braidlog.core.errors import UserError

_LONGEST_REASON: Final = 300


class NotOfItsSchema(ValueError):
    """The bytes are none that the schema could have written."""


def parsed(schema: Any) -> Any:
    try:
        return fastavro.parse_schema(schema)
    except Exception as error:
        # Beside its own, fastavro raises whatever a schema without a name or a type led it to.
        raise UserError(f"the Avro schema is not valid: {reason(error)}") from None


def read_avro(data: bytes, start: int, schema: Any) -> Any:
    """The value from `start` to the end; logical types come as Python's dates, times, decimals and UUIDs."""
    body = io.BytesIO(data)
    body.seek(start)
    try:
        value: Any = fastavro.schemaless_reader(body, schema, None)
    except Exception as error:
        # fastavro raises whatever the bytes led it to.
        raise NotOfItsSchema(reason(error)) from None
    left = len(data) - body.tell()
    if left:
        raise NotOfItsSchema(f"{left} bytes follow it")
    return value


def reason(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return (f"{type(error).__name__}: {text}" if text else type(error).__name__)[:_LONGEST_REASON]
