"""What programs hand over as rows, in pieces of a few megabytes, and which of its columns are what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from braidlog.core.errors import UserError

# Small enough that the sender works on one while the next is being built, large enough to be worth a call.
PIECE_BYTES: Final = 4 * 1024 * 1024
# Of rows that go to many partitions, so that each gets enough of them to fill a batch.
MOST_PIECE_BYTES: Final = 16 * 1024 * 1024
PIECE_ROWS: Final = 131_072
# Rows differ in size: a piece may be so many times as large as it was meant to be.
_TOLERANCE: Final = 4


def batches_of(data: Any) -> Iterator[pa.RecordBatch]:
    """The rows of a table, a batch, a reader, an iterable of batches, or of what speaks Arrow's stream protocol."""
    return (batch for batch in _batches_of(data) if batch.num_rows)


def pieces_of(batch: pa.RecordBatch, piece_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batch in slices of about so many bytes, none of which is copied."""
    rows = batch.num_rows
    step = max(min(rows * piece_bytes // max(_bytes_of(batch), 1), PIECE_ROWS), 1)
    for first in range(0, rows, step):
        yield from _halved(batch.slice(first, step), _TOLERANCE * piece_bytes)


def _halved(piece: pa.RecordBatch, most: int) -> Iterator[pa.RecordBatch]:
    """The piece, in halves of halves where the larger rows are together."""
    rows = piece.num_rows
    # How much of their buffers views use is not known without going through them.
    if rows == 1 or any(_is_view(each.type) for each in piece.columns) or _bytes_of(piece) <= most:
        yield piece
        return
    yield from _halved(piece.slice(0, rows // 2), most)
    yield from _halved(piece.slice(rows // 2), most)


def _bytes_of(batch: pa.RecordBatch) -> int:
    """What the rows take when they are written out: one word of a dictionary may stand for many rows."""
    return sum(_words_bytes(each) if pa.types.is_dictionary(each.type) else each.nbytes for each in batch.columns)


def _words_bytes(array: pa.DictionaryArray) -> int:
    words = array.dictionary
    if _is_view(words.type):
        words = words.cast(pa.large_binary())
    try:
        total = pc.sum(pc.binary_length(words).take(array.indices)).as_py()
    except pa.ArrowNotImplementedError:
        # Words of another kind, which are refused if they are to be sent.
        return int(array.nbytes)
    return int(total or 0) + int(array.indices.nbytes)


def _is_view(kind: pa.DataType) -> bool:
    return bool(kind in (pa.binary_view(), pa.string_view()))


def without_views(batch: pa.RecordBatch, names: Iterable[str]) -> pa.RecordBatch:
    """These columns of it, laid out so that Arrow can pick rows of them: it cannot with views."""
    chosen = {name: batch.column(name) for name in names}
    return pa.record_batch(
        {name: each.cast(pa.large_binary()) if _is_view(each.type) else each for name, each in chosen.items()}
    )


def _batches_of(data: Any) -> Iterable[pa.RecordBatch]:
    if isinstance(data, pa.Table):
        batches: list[pa.RecordBatch] = data.to_batches()
        return batches
    if isinstance(data, pa.RecordBatch):
        return [data]
    if not isinstance(data, pa.RecordBatchReader) and hasattr(data, "__arrow_c_stream__"):
        return _batches_of(pa.RecordBatchReader.from_stream(data))
    if isinstance(data, Iterable) and not isinstance(data, (str, bytes, dict)):
        return _checked(data)
    raise UserError(
        f"{type(data).__name__} has no Arrow columns; give a pyarrow Table, RecordBatch or RecordBatchReader"
    )


def _checked(data: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for each in data:
        if isinstance(each, pa.Table):
            yield from each.to_batches()
        elif isinstance(each, pa.RecordBatch):
            yield each
        else:
            raise UserError(f"{type(each).__name__} among the batches; give pyarrow RecordBatches or Tables")


class ColumnNames:
    """The names of the columns that records are made of; None where records have no such part."""

    def __init__(
        self,
        *,
        topic: str | None,
        key: str | None = "key",
        value: str | None = "value",
        headers: str | None = "headers",
        timestamp: str | None = None,
        partition: str | None = None,
    ) -> None:
        self.topic = topic
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp = timestamp
        self.partition = partition

    def found_in(self, schema: pa.Schema) -> ColumnNames:
        """The same without the optional ones that the table does not have; UserError when another is missing."""
        names = schema.names
        # Default names are taken when they are there.
        found = ColumnNames(
            topic=self.topic,
            key=None if self.key == "key" and "key" not in names else self.key,
            value=self.value,
            headers=None if self.headers == "headers" and "headers" not in names else self.headers,
            timestamp=self.timestamp,
            partition=self.partition,
        )
        for part, name in found.parts().items():
            if name is None:
                continue
            if names.count(name) != 1:
                there = "twice a" if name in names else "no"
                raise UserError(
                    f"the table has {there} column {name!r} for the {part}; it has {', '.join(names) or 'none at all'}"
                    f"{' (value=None sends records without a value)' if part == 'value' else ''}"
                )
        return found

    def parts(self) -> dict[str, str | None]:
        return {
            "topic": self.topic,
            "key": self.key,
            "value": self.value,
            "headers": self.headers,
            "timestamp": self.timestamp,
            "partition": self.partition,
        }
