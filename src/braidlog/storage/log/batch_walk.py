"""From batch to batch through a `.log` file by the headers alone (hot: compiled by mypyc).

Only pages that hold a header are read, so skipping large batches costs one small read each.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be, read_i64_be
from mypy_extensions import i64

from braidlog.core.errors import CorruptLogError
from braidlog.storage.files import File
from braidlog.wire.records.batch import (
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LEADER_EPOCH_AT,
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAX_TIMESTAMP_AT,
    MESSAGE_V0_SIZE,
    MESSAGE_V1_SIZE,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    BatchHeader,
    read_header,
)

_CHUNK: Final = 8192
_MESSAGE_TIMESTAMP_AT: Final = 18


class BatchWalk:
    """`advance()` steps on the next batch between `position` and `end`, whose facts then stand in the fields."""

    def __init__(self, file: File, path: str, position: int, end: int, chunk_size: int = _CHUNK) -> None:
        self._file = file
        self._path = path
        self._next: i64 = position
        self._end: i64 = end
        self._chunk = b""
        self._chunk_at: i64 = 0
        self._chunk_size: i64 = chunk_size
        self.position: i64 = position
        self.size: i64 = 0
        self.base_offset: i64 = -1
        # Of a compressed old message the only offset in its header.
        self.last_offset: i64 = -1
        self.magic: i64 = 0

    def advance(self) -> bool:
        """False at the end; raises CorruptLogError where no batch can start."""
        at: i64 = self._next
        left: i64 = self._end - at
        if left <= 0:
            return False
        if left < MESSAGE_V0_SIZE:
            raise CorruptLogError(f"{self._path}: {left} bytes at position {at} are too few for a record batch")
        chunk = self._chunk
        inside: i64 = at - self._chunk_at
        if inside + HEADER_SIZE > len(chunk):
            chunk = self._file.pread(min(self._chunk_size, left), at)
            self._chunk = chunk
            self._chunk_at = at
            inside = 0
            if len(chunk) < min(left, HEADER_SIZE):
                raise CorruptLogError(f"{self._path}: the file ends at {at + len(chunk)}, before {self._end}")
        size: i64 = i64(read_i32_be(chunk, inside + LENGTH_AT)) + LOG_OVERHEAD
        magic: i64 = chunk[inside + MAGIC_AT]
        smallest: i64 = HEADER_SIZE if magic == 2 else MESSAGE_V1_SIZE if magic == 1 else MESSAGE_V0_SIZE
        if size < smallest or size > left or magic > 2:
            raise CorruptLogError(f"{self._path}: no record batch at position {at} (size {size}, magic {magic})")
        self.position = at
        self.size = size
        self.magic = magic
        self.base_offset = read_i64_be(chunk, inside)
        if magic == 2:
            self.last_offset = self.base_offset + i64(read_i32_be(chunk, inside + LAST_OFFSET_DELTA_AT))
        else:
            self.last_offset = self.base_offset
        self._next = at + size
        return True

    @property
    def end(self) -> int:
        """Position after the current batch."""
        return self._next

    @property
    def leader_epoch(self) -> int:
        if self.magic < 2:
            return NO_LEADER_EPOCH
        return read_i32_be(self._chunk, self.position - self._chunk_at + LEADER_EPOCH_AT)

    @property
    def max_timestamp(self) -> int:
        inside: i64 = self.position - self._chunk_at
        if self.magic == 2:
            return read_i64_be(self._chunk, inside + MAX_TIMESTAMP_AT)
        return read_i64_be(self._chunk, inside + _MESSAGE_TIMESTAMP_AT) if self.magic == 1 else NO_TIMESTAMP

    def header(self) -> BatchHeader:
        """The whole header; its `position` is the batch's in the file."""
        header = read_header(self._chunk, self.position - self._chunk_at, len(self._chunk))
        header.position = self.position
        return header

    def read(self) -> bytes:
        """The whole batch."""
        return self._file.pread(self.size, self.position)
