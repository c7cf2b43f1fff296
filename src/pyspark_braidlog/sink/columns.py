"""Which columns of a DataFrame become which parts of records, with the refusals of Spark's Kafka connector.

| column | type | |
|---|---|---|
| value | binary or string | must be there; null is a tombstone |
| key | binary or string | null, or no column: no key |
| headers | array<struct<key: string, value: binary>> | |
| topic | string | of no effect with the option topic |
| partition | int | null, or no column: by the key |

Other columns are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from braidlog.core.errors import UserError

_BYTES: Final = (BinaryType, StringType)
_KNOWN: Final = ("key", "value", "headers", "topic", "partition")
_HEADERS: Final = "array<struct<key: string, value: binary>>"


@dataclass(frozen=True, slots=True)
class Columns:
    """What there is beside the value."""

    # None: each row's is in the column.
    topic: str | None
    key: bool
    headers: bool
    partition: bool

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> Columns:
        """Refuses a schema that cannot be written; `topic` is the option."""
        types = {field.name: field.dataType for field in schema.fields}
        for name in _KNOWN:
            if schema.names.count(name) > 1:
                raise UserError(f"there are several columns {name}; which is meant? rename or drop the others")
        if "value" not in types:
            raise UserError(
                f"there is no column value (there are: {', '.join(types) or 'none'}); "
                "make one, for instance df.selectExpr('to_json(struct(*)) AS value')"
            )
        _check(types, "value", _BYTES, "binary or string")
        _check(types, "key", _BYTES, "binary or string")
        _check(types, "partition", (IntegerType,), "int")
        if "headers" in types and not _are_headers(types["headers"]):
            raise _wrong("headers", types["headers"], _HEADERS)
        if topic is None:
            if "topic" not in types:
                raise UserError("no topic to write to: set the option topic, or have a column topic with each row's")
            _check(types, "topic", (StringType,), "string")
        return cls(topic, "key" in types, "headers" in types, "partition" in types)

    def keys(self, batch: pa.RecordBatch) -> pa.Array | None:
        return batch.column("key") if self.key else None

    def first_topic(self, batch: pa.RecordBatch) -> str:
        """The first topic of a batch that has rows."""
        if self.topic is not None:
            return self.topic
        self._check_topics(batch)
        return str(batch.column("topic")[0].as_py())

    def topics(self, batch: pa.RecordBatch) -> list[str]:
        """Those that the rows name; none where the option does."""
        if self.topic is not None:
            return []
        return [each for each in pc.unique(batch.column("topic")).to_pylist() if each is not None]

    def pieces(self, batch: pa.RecordBatch) -> Iterator[tuple[pa.RecordBatch, dict[str, Any]]]:
        """A batch as `send_arrow` takes it, with its arguments; in two where only some rows name their partition."""
        if self.topic is None:
            self._check_topics(batch)
        arguments: dict[str, Any] = {
            "topic": self.topic,
            "key": "key" if self.key else None,
            "headers": "headers" if self.headers else None,
        }
        if not self.partition:
            yield batch, arguments
            return
        column = batch.column("partition")
        if column.null_count < len(column):
            named = batch.filter(pc.is_valid(column)) if column.null_count else batch
            yield named, {**arguments, "partition_by": "partition"}
        if column.null_count:
            yield batch.filter(pc.is_null(column)), arguments

    def _check_topics(self, batch: pa.RecordBatch) -> None:
        if batch.column("topic").null_count:
            raise UserError(
                "there are rows whose topic is null; give every row one, or set the option topic for all of them"
            )


def _check(types: dict[str, DataType], name: str, allowed: tuple[type[DataType], ...], wanted: str) -> None:
    if name in types and not isinstance(types[name], allowed):
        raise _wrong(name, types[name], wanted)


def _wrong(name: str, found: DataType, wanted: str) -> UserError:
    advice = f"; cast it, for instance col({name!r}).cast('string')" if wanted.endswith("string") else ""
    return UserError(f"column {name} is {found.simpleString()}, but has to be {wanted}{advice}")


def _are_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = [(field.name, type(field.dataType)) for field in kind.elementType.fields]
    return fields == [("key", StringType), ("value", BinaryType)]
