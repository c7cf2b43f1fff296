"""Between formats: batches v2 down to message sets for Fetch v0–v3, old message sets up to one v2 batch."""

from __future__ import annotations

from braidlog.wire.records.compression import DEFAULT_LIMIT
from braidlog.wire.records.reading import Record


def down_convert(
    buffer: bytes, start: int, end: int, *, magic: int, first_offset: int = 0, limit: int = DEFAULT_LIMIT
) -> bytes:
    """The whole batches of `buffer[start:end]` as messages of `magic` 0 or 1.

    Headers and control batches are left out, offsets kept, and records below `first_offset` too where a batch is
    rewritten. Raises UnsupportedCompressionTypeError for zstd, which the old formats do not know.
    """
    raise NotImplementedError


def read_message_set(buffer: bytes, start: int, end: int, *, limit: int = DEFAULT_LIMIT) -> list[Record]:
    """Every message of an old set, wrappers unpacked, checksums checked (inner ones too)."""
    raise NotImplementedError
