"""From a timestamp to an offset before which no record is that young (hot: compiled by mypyc).

    0                               8               12
    +-------------------------------+---------------+
    | timestamp (int64, ms)         | offset - base |   big-endian; timestamps strictly ascending
    +-------------------------------+---------------+

An entry says: up to `offset`, the last one of a batch, no record is younger than `timestamp`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from mypy_extensions import i64

from braidlog.core.errors import CorruptLogError
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.index_file import PAGE_BYTES, IndexFile
from braidlog.wire.records.batch import NO_TIMESTAMP

ENTRY_SIZE: Final = 12
_ENTRY: Final = Struct(">qi")
_TIMESTAMP: Final = Struct(">q")
_OFFSET: Final = Struct(">i")
_OFFSET_AT: Final = 8
_ENTRIES_PER_PAGE: Final = PAGE_BYTES // ENTRY_SIZE


class TimeIndex:
    def __init__(self, files: Files, handles: HandlePool, path: str, base_offset: int, max_bytes: int) -> None:
        self.file = IndexFile(files, handles, path, ENTRY_SIZE)
        self.base_offset = base_offset
        self.max_entries: int = max(max_bytes // ENTRY_SIZE, 2)

    @property
    def is_full(self) -> bool:
        """One place stays free for the entry that closing the segment adds."""
        return self.file.count() >= self.max_entries - 1

    @property
    def count(self) -> int:
        return self.file.count()

    def entry(self, number: int) -> tuple[int, int]:
        """(timestamp, offset)."""
        timestamp, relative = _ENTRY.unpack(self.file.read(number, 1))
        return int(timestamp), self.base_offset + int(relative)

    def last(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry; (-1, base offset) of an empty index."""
        count = self.file.count()
        if count == 0:
            return NO_TIMESTAMP, self.base_offset
        return self.entry(count - 1)

    def append(self, timestamp: int, offset: int) -> None:
        """Add an entry unless one as young is there; offsets never go back."""
        last_timestamp, last_offset = self.last()
        if timestamp > last_timestamp and offset >= last_offset:
            self.file.add(_ENTRY.pack(timestamp, offset - self.base_offset))

    def floor(self, timestamp: int) -> tuple[int, int]:
        """(timestamp, offset) of the last entry that is not younger; (-1, base offset) for none."""
        number = self._floor(timestamp)
        return self.entry(number) if number >= 0 else (NO_TIMESTAMP, self.base_offset)

    def truncate_to_offset(self, offset: int) -> None:
        """Drop the entries at or past `offset`."""
        image = self.file.image()
        relative = offset - self.base_offset
        count = self.file.count()
        while count > 0 and _OFFSET.unpack_from(image, (count - 1) * ENTRY_SIZE + _OFFSET_AT)[0] >= relative:
            count -= 1
        self.file.truncate(count)

    def check(self) -> None:
        """Raises CorruptLogError where the file cannot be a time index."""
        self.file.check_whole()
        count = self.file.count()
        timestamp, offset = self.last()
        if count > 0 and (offset < self.base_offset or timestamp < self.entry(0)[0]):
            raise CorruptLogError(
                f"{self.file.path}: last entry (timestamp {timestamp}, offset {offset}) does not fit a segment of "
                f"base offset {self.base_offset}"
            )

    def _floor(self, timestamp: int) -> int:
        low: i64 = 0
        high: i64 = self.file.count()
        if high == 0:
            return -1
        if self.file.is_resident:
            return _floor_in(self.file.image(), low, high, timestamp)
        while high - low > _ENTRIES_PER_PAGE:
            middle = (low + high) // 2
            if _TIMESTAMP.unpack_from(self.file.read(middle, 1), 0)[0] <= timestamp:
                low = middle
            else:
                high = middle
        page = self.file.read(low, high - low)
        found: i64 = _floor_in(page, 0, len(page) // ENTRY_SIZE, timestamp)
        return low + found if found >= 0 else low - 1


def _floor_in(entries: bytes | bytearray, low: i64, high: i64, timestamp: int) -> int:
    while low < high:
        middle = (low + high) // 2
        if _TIMESTAMP.unpack_from(entries, middle * ENTRY_SIZE)[0] <= timestamp:
            low = middle + 1
        else:
            high = middle
    return low - 1
