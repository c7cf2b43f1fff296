"""What the log cleaner does to a batch: list its keys, and build it again with only the records that stay."""

from __future__ import annotations

from braidlog.wire.records.batch import BatchHeader
from braidlog.wire.records.compression import DEFAULT_LIMIT


def key_offsets(
    buffer: bytes, header: BatchHeader, *, limit: int = DEFAULT_LIMIT
) -> list[tuple[bytes | None, int]]:
    """(key, offset) of every record in order, for the cleaner's offset map; None where a record has no key."""
    raise NotImplementedError


def record_summaries(
    buffer: bytes, header: BatchHeader, *, limit: int = DEFAULT_LIMIT
) -> list[tuple[bytes | None, int, int, bool]]:
    """(key, offset, timestamp, has value) of every record, what the cleaner needs to decide which ones stay."""
    raise NotImplementedError


def retain(
    buffer: bytes,
    header: BatchHeader,
    keep: list[bool],
    *,
    delete_horizon_ms: int | None = None,
    keep_empty: bool = False,
    level: int | None = None,
    limit: int = DEFAULT_LIMIT,
) -> bytes | None:
    """The batch with only the records whose `keep` is true; None when nothing is left and it may go.

    Base offset, last offset delta and producer fields stay, so that offsets and producer state survive compaction;
    with `keep_empty` a batch that lost every record is kept as its bare header. `delete_horizon_ms` marks the batch
    (KIP-534): the horizon takes the base timestamp's place and the deltas are computed anew from it.
    """
    raise NotImplementedError


def empty_batch(header: BatchHeader) -> bytes:
    """A batch without records that keeps the offsets and producer fields of `header`."""
    raise NotImplementedError
