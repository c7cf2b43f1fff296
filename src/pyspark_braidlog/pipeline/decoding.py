"""What decoders have in common: the columns that they leave, and telling good records from malformed ones.

A decoder replaces the bytes of `value` (or `key`) by what they mean and adds two columns:

    value        the decoded structure; null where the record has no value (a tombstone) or cannot be decoded
    raw_value    the bytes as they came
    error        why the record is malformed; null where it is not

Everything else a record has (key, topic, partition, offset, timestamp, headers) stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from braidlog.core.errors import UserError

ERROR = "error"
RAW = "raw_"


def split_malformed(decoded: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The records that could be decoded, without the decoder's additions, and those that could not, with them.

    Both are views of the same records: two streaming queries, one on each, read the topic twice. `route` sends good
    and malformed records on in one query that reads once.
    """
    _need(decoded, (ERROR,), "split_malformed takes what decode_json or decode_avro returned")
    raw = [name for name in decoded.columns if name.startswith(RAW)]
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
        clash = sorted(({raw, ERROR} | set(kept)) & set(flatten.names))
        if clash:
            raise UserError(
                f"the field {clash[0]!r} would hide the record's column of that name: decode without flatten "
                f"and take it as {column}.{clash[0]}, or rename the column before"
            )
        made = [value.getField(name).alias(name) for name in flatten.names]
    return parsed.select(*map(quoted, kept), *made, quoted(column).alias(raw), error.alias(ERROR))


def check_bytes_column(records: DataFrame, column: str, function: str) -> None:
    _need(records, (column,), f"{function} decodes the column {column!r}")
    kind = records.schema[column].dataType.typeName()
    if kind not in ("binary", "string"):
        raise UserError(f"{function} decodes bytes or text, but the column {column!r} is {kind}")


def _need(frame: DataFrame, columns: Sequence[str], why: str) -> None:
    missing = [name for name in columns if name not in frame.columns]
    if missing:
        raise UserError(f"{why}, but there is no column {missing[0]!r} among {', '.join(frame.columns)}")


def quoted(name: str) -> Column:
    """A column whose name may have dots in it."""
    return F.col("`" + name.replace("`", "``") + "`")
