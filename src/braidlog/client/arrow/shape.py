"""What a table of records looks like: which columns it has, and of which Arrow types."""

from __future__ import annotations

from typing import Final, Literal

import pyarrow as pa

from braidlog.client.arguments import Many, listed
from braidlog.core.errors import UserError
from braidlog.wire.records.columns import RecordColumns

# The order and the names are those of Spark's Kafka source, but for `timestamp_type` and `leader_epoch`.
COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "headers",
    "leader_epoch",
)
# The columns of a table where none are named.
USUAL: Final = COLUMNS[:-1]

TimeUnit = Literal["ms", "us"]
BytesLayout = Literal["binary", "large_binary", "binary_view"]

_LAYOUTS: Final[dict[str, pa.DataType]] = {
    "binary": pa.binary(),
    "large_binary": pa.large_binary(),
    "binary_view": pa.binary_view(),
}
HEADER_FIELDS: Final = (pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary()))
HEADERS: Final = pa.list_(pa.field("element", pa.struct(HEADER_FIELDS), nullable=False))


class TableShape:
    """The columns of a table of records, in order.

    `timestamp_unit` "us" is what Spark wants; times are in UTC. `bytes_layout` "binary_view" leaves keys and values
    where they were received: nothing is copied, and the whole received block lives as long as the table.
    """

    def __init__(
        self,
        columns: Many[str] | None = None,
        *,
        timestamp_unit: TimeUnit = "ms",
        bytes_layout: BytesLayout = "binary",
    ) -> None:
        self.columns = USUAL if columns is None else tuple(listed(columns, "columns"))
        if not self.columns:
            raise UserError(f"columns is a list of names out of {', '.join(COLUMNS)}")
        for each in self.columns:
            if each not in COLUMNS:
                raise UserError(f"there is no column {each!r}; a table of records can have {', '.join(COLUMNS)}")
        if len(set(self.columns)) < len(self.columns):
            raise UserError(f"a column is asked for twice: {', '.join(self.columns)}")
        if timestamp_unit not in ("ms", "us"):
            raise UserError(f"timestamp_unit is 'ms' or 'us', not {timestamp_unit!r}")
        if bytes_layout not in _LAYOUTS:
            raise UserError(f"bytes_layout is one of {', '.join(_LAYOUTS)}, not {bytes_layout!r}")
        self.bytes_type = _LAYOUTS[bytes_layout]
        self.timestamp_type = pa.timestamp(timestamp_unit, "UTC")
        types = {
            "key": self.bytes_type,
            "value": self.bytes_type,
            "topic": pa.string(),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": self.timestamp_type,
            "timestamp_type": pa.int32(),
            "headers": HEADERS,
            "leader_epoch": pa.int32(),
        }
        self.schema = pa.schema([pa.field(name, types[name], name in ("key", "value")) for name in self.columns])

    def new_columns(self) -> RecordColumns:
        """Empty columns for the parser, of which it fills those that the table needs."""
        wanted = set(self.columns)
        return RecordColumns(
            keys="key" in wanted,
            values="value" in wanted,
            headers="headers" in wanted,
            offsets="offset" in wanted,
            timestamps="timestamp" in wanted,
        )
