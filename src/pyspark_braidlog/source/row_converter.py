"""Decoded record batches as the Arrow batches that Spark takes: its names, its types, nothing copied."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pyspark_braidlog.source.schema import check_schema

# Spark's name -> the name in our own tables.
_OUR_NAMES: Final = {"timestampType": "timestamp_type"}
# Tiny records come by the million; for each batch the JVM makes room at once.
_MOST_ROWS: Final = 131_072


class RowConverter:
    """Turns tables of records into rows of a Spark schema."""

    def __init__(self, schema: StructType) -> None:
        check_schema(schema)
        # Spark refuses a batch whose schema is not exactly this.
        self.schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")
        self.columns = [_OUR_NAMES.get(name, name) for name in schema.names]

    def of(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The same rows, in pieces; `batch` has `columns`, times in microseconds, bytes as `binary`."""
        arrays = [
            _headers(array, field.type) if field.name == "headers" else array
            for array, field in zip(batch.columns, self.schema, strict=True)
        ]
        whole = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        for first in range(0, whole.num_rows, _MOST_ROWS):
            yield whole.slice(first, _MOST_ROWS)


def _headers(array: pa.ListArray, kind: pa.DataType) -> pa.Array:
    """Null where a record has none, as the connector has it; other parts may be null for Spark that never are."""
    count = len(array)
    pairs = array.values
    if not len(pairs):
        return pa.nulls(count, kind)
    pairs = pa.StructArray.from_arrays(pairs.flatten(), fields=list(kind.value_type))
    has_some = pc.not_equal(pc.list_value_length(array), 0)
    nulls = count - pc.sum(has_some).as_py()
    return pa.Array.from_buffers(
        kind, count, [has_some.buffers()[1] if nulls else None, array.buffers()[1]], nulls, 0, [pairs]
    )
