"""Walks a `.log` file whatever its state: sound batches, damaged ones, and the bytes in between that are neither."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from braidlog.core.protocol_errors import CorruptMessageError
from braidlog.storage.files import File, Files
from braidlog.wire.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    MESSAGE_V0_SIZE,
    BatchHeader,
    check_crc,
    read_header,
)

# No client sends more in one batch than a request may hold; a longer one is a damaged length.
_LARGEST_BATCH: Final = 1 << 30
_SEARCH_BYTES: Final = 1 << 20
_FARTHEST_OFFSET: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class FoundBatch:
    position: int
    header: BatchHeader
    # The whole batch; `header.position` is 0 in it.
    data: bytes
    # Why its checksum, and so its content, is not to be believed; none for a sound batch.
    damage: str | None

    @property
    def is_valid(self) -> bool:
        return self.damage is None


@dataclass(frozen=True, slots=True)
class Gap:
    """Bytes in which no batch can be made out."""

    position: int
    size: int
    reason: str
    # Nothing but an unfinished write: less than a batch, or zeros, up to the end of the file.
    is_torn_tail: bool


def walk_file(files: Files, path: str, first_offset: int = 0) -> Iterator[FoundBatch | Gap]:
    """All of the file, in order; `first_offset` is the least that its batches may have."""
    file = files.open_read(path)
    try:
        yield from _walk(file, file.size(), first_offset)
    finally:
        file.close()


def _walk(file: File, size: int, expected: int) -> Iterator[FoundBatch | Gap]:
    position = 0
    while position < size:
        found = _batch_at(file, position, size)
        if isinstance(found, FoundBatch) and (found.is_valid or _is_whole(file, found, size)):
            yield found
            if _is_plausible(found.header.base_offset, expected):
                expected = max(expected, found.header.next_offset)
            position += found.header.size
            continue
        reason = found if isinstance(found, str) else str(found.damage)
        after = _search(file, position + 1, size, expected)
        torn = after == size and (isinstance(found, str) or _is_zero(file, position, size))
        yield Gap(position, after - position, reason, torn)
        position = after


def _batch_at(file: File, position: int, size: int) -> FoundBatch | str:
    """The batch, sound or with a wrong checksum, or why there is none."""
    head = file.pread(HEADER_SIZE, position)
    if len(head) < MESSAGE_V0_SIZE:
        return f"{size - position} bytes at position {position} are less than a batch"
    try:
        header = read_header(head, 0, len(head))
    except CorruptMessageError as problem:
        return f"no batch at position {position}: {problem.message}"
    if header.size > min(size - position, _LARGEST_BATCH):
        return (
            f"the batch at position {position} (offset {header.base_offset}) says it has {header.size} bytes, "
            f"but the file ends after {size - position}"
        )
    data = file.pread(header.size, position)
    try:
        check_crc(data, header)
    except CorruptMessageError as problem:
        return FoundBatch(position, header, data, f"batch at position {position}: {problem.message}")
    return FoundBatch(position, header, data, None)


def _is_whole(file: File, found: FoundBatch, size: int) -> bool:
    """A damaged batch whose length is right is followed by the end of the file or another batch."""
    after = found.position + found.header.size
    return after == size or isinstance(_batch_at(file, after, size), FoundBatch)


def _search(file: File, position: int, size: int, expected: int) -> int:
    """Where the next sound batch starts; the end of the file without one."""
    while position + MESSAGE_V0_SIZE <= size:
        window = file.pread(_SEARCH_BYTES + HEADER_SIZE, position)
        at = window.find(b"\x02", MAGIC_AT)
        while at >= 0:
            start = at - MAGIC_AT
            if start >= _SEARCH_BYTES:
                break
            offset = int.from_bytes(window[start : start + 8], "big", signed=True)
            length = int.from_bytes(window[start + 8 : start + LOG_OVERHEAD], "big", signed=True)
            if (
                _is_plausible(offset, expected)
                and HEADER_SIZE - LOG_OVERHEAD <= length <= size - position - start - LOG_OVERHEAD
            ):
                found = _batch_at(file, position + start, size)
                if isinstance(found, FoundBatch) and found.is_valid:
                    return position + start
            at = window.find(b"\x02", at + 1)
        position += _SEARCH_BYTES
    return size


def _is_plausible(offset: int, expected: int) -> bool:
    """The checksum does not cover a batch's offset, so the neighbours must vouch for it."""
    return 0 <= offset - expected < _FARTHEST_OFFSET


def _is_zero(file: File, position: int, size: int) -> bool:
    while position < size:
        chunk = file.pread(_SEARCH_BYTES, position)
        if not chunk or any(chunk):
            return False
        position += len(chunk)
    return True
