"""What decoders have in common: the columns that they leave, and telling good records from malformed ones.

A decoder replaces the bytes of `value` (or `key`) by what they mean and adds two columns:

    value        the decoded structure; null where the record has no value (a tombstone) or cannot be decoded
    raw_value    the bytes as they came
    error        why the record is malformed; null where it is not

Everything else a record has (key, topic, partition, offset, timestamp, headers) stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from braidlog.core.errors import UserError

ERROR = "error"
RAW = "raw_"
# Marks the columns that decoders add: a field of the records may be called raw_… as well.
_BYTES_OF: Final = "braidlog.bytes_of"
_BYTES: Final = ("binary", "string")


def split_malformed(decoded: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The records that could be decoded, without the decoder's additions, and those that could not, with them.

    Both are views of the same records: two streaming queries, one on each, read the topic twice. `route` sends good
    and malformed records on in one query that reads once.
    """
    _need(decoded, (ERROR,), "split_malformed takes what decode_json, decode_avro or decode_protobuf returned")
    raw = [field.name for field in decoded.schema.fields if _BYTES_OF in (field.metadata or {})]
    good = decoded.where(F.col(ERROR).isNull()).drop(ERROR, *raw)
    return good, decoded.where(F.col(ERROR).isNotNull())


def decoded_columns(
    records: DataFrame, parsed: DataFrame, column: str, value: Column, error: Column, flatten: StructType | None
) -> DataFrame:
    """`parsed` is `records` with something more that `value` and `error` are made of."""
    raw = RAW + column
    if ERROR in records.columns:
        # Another column was decoded before: the first error is the record's.
        error = F.coalesce(F.col(ERROR), error)
    kept = [name for name in records.columns if name not in (column, ERROR, raw)]
    if flatten is None:
        made = [value.alias(column)]
    else:
        # Spark takes names for the same that differ in case.
        taken = {name.casefold() for name in (raw, ERROR, *kept)}
        clash = sorted(name for name in flatten.names if name.casefold() in taken)
        if clash:
            raise UserError(
                f"the field {clash[0]!r} would hide the record's column of that name: decode without flatten "
                f"and take it as {column}.{clash[0]}, or rename the column before"
            )
        made = [value.getField(name).alias(name) for name in flatten.names]
    bytes_ = quoted(column).alias(raw, metadata={_BYTES_OF: column})
    return parsed.select(*map(quoted, kept), *made, bytes_, error.alias(ERROR))


def bytes_of(decoded: DataFrame, column: str) -> Column:
    """The column's bytes as they came, whether or not it was decoded; null where there is no such column."""
    fields = {field.name: field for field in decoded.schema.fields}
    raw, own = fields.get(RAW + column), fields.get(column)
    is_decoded = raw is not None and _BYTES_OF in (raw.metadata or {})
    if own is not None and not is_decoded and own.dataType.typeName() in _BYTES:
        return quoted(column).cast("binary")
    if raw is None and own is None:
        return F.lit(None).cast("binary")
    return quoted(column if raw is None else RAW + column).cast("binary")


def check_bytes_column(records: DataFrame, column: str, function: str) -> None:
    _need(records, (column,), f"{function} decodes the column {column!r}")
    kind = records.schema[column].dataType.typeName()
    if kind not in _BYTES:
        raise UserError(f"{function} decodes bytes or text, but the column {column!r} is {kind}")


def _need(frame: DataFrame, columns: Sequence[str], why: str) -> None:
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise UserError(f"{why}, but there is no column {missing[0]!r} among {', '.join(frame.columns)}")


def quoted(name: str) -> Column:
    """A column whose name may have dots in it."""
    return F.col("`" + name.replace("`", "``") + "`")
