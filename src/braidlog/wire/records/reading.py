"""Records as objects: for the command line, the dump tool and tests; the broker's own path never builds them."""

from __future__ import annotations

from collections.abc import Iterator

from braidlog.wire.records.batch import BatchHeader
from braidlog.wire.records.compression import DEFAULT_LIMIT

Header = tuple[str, bytes | None]


class Record:
    """One record; `headers` in order, `attributes` of the record itself (of an old message: the message's)."""

    __slots__ = ("attributes", "headers", "key", "offset", "sequence", "timestamp", "value")

    def __init__(
        self,
        offset: int = 0,
        timestamp: int = -1,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: tuple[Header, ...] = (),
        *,
        attributes: int = 0,
        sequence: int = -1,
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.attributes = attributes
        self.sequence = sequence


def read_batch(
    buffer: bytes, header: BatchHeader, *, check_crc: bool = True, limit: int = DEFAULT_LIMIT
) -> list[Record]:
    """The records of one batch (or of one old message, wrapper unpacked)."""
    raise NotImplementedError


def iterate_batches(
    buffer: bytes, start: int, end: int, *, check_crc: bool = True, limit: int = DEFAULT_LIMIT
) -> Iterator[tuple[BatchHeader, list[Record]]]:
    """Each whole batch with its records, stopping at an incomplete tail."""
    raise NotImplementedError


def read_records(
    buffer: bytes, start: int = 0, end: int | None = None, *, check_crc: bool = True, limit: int = DEFAULT_LIMIT
) -> list[Record]:
    """All records of the whole batches in `buffer[start:end]`, of any magic and codec."""
    raise NotImplementedError
