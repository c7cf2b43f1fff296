"""A column of bytes to a column of structures with an `error` beside each; runs in Spark's Python workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from braidlog.client.schema_registry.avro import reason

VALUE: Final = "value"
ERROR: Final = "error"
# What pyarrow raises for a value that its type cannot hold.
_MISFITS: Final = (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError, TypeError)


def decoded_structs(
    values: pa.Array, read: Callable[[bytes], tuple[Any, str | None]], kind: pa.DataType, column: str
) -> pa.StructArray:
    """A structure of `value` and `error` for each of the values; `read` gives one of the two."""
    found: list[Any] = []
    errors: list[str | None] = []
    for data in values.to_pylist():
        value, error = (None, None) if data is None else read(data)
        found.append(value)
        errors.append(error)
    try:
        made = pa.array(found, type=kind)
    except _MISFITS:
        # A value that the format allows and Spark does not, such as a decimal of more digits than its schema says.
        made = _one_by_one(found, errors, kind, column)
    return pa.StructArray.from_arrays([made, pa.array(errors, type=pa.string())], names=[VALUE, ERROR])


def _one_by_one(found: list[Any], errors: list[str | None], kind: pa.DataType, column: str) -> pa.Array:
    for number, value in enumerate(found):
        try:
            pa.array([value], type=kind)
        except _MISFITS as error:
            found[number] = None
            errors[number] = f"{column} does not fit Spark's types: {reason(error)}"
    return pa.array(found, type=kind)
