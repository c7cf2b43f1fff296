"""From an offset to the place in the `.log` file where to look for it (hot: compiled by mypyc).

    0               4               8
    +---------------+---------------+
    | offset - base | position      |   both int32, big-endian; ascending; one entry per index.interval.bytes
    +---------------+---------------+

An entry names the last offset of the batch that starts at `position`; the first batch of a segment never has one, so
a position of zero marks the end of a zero-padded file.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from mypy_extensions import i64

from braidlog.core.errors import CorruptLogError
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.index_file import PAGE_BYTES, IndexFile

ENTRY_SIZE: Final = 8
MAX_RELATIVE_OFFSET: Final = 0x7FFFFFFF
_ENTRY: Final = Struct(">ii")
_FIELD: Final = Struct(">i")
_OFFSET_AT: Final = 0
_POSITION_AT: Final = 4
_ENTRIES_PER_PAGE: Final = PAGE_BYTES // ENTRY_SIZE


class OffsetIndex:
    def __init__(self, files: Files, handles: HandlePool, path: str, base_offset: int, max_bytes: int) -> None:
        self.file = IndexFile(files, handles, path, ENTRY_SIZE)
        self.base_offset = base_offset
        self.max_entries: int = max(max_bytes // ENTRY_SIZE, 1)

    @property
    def is_full(self) -> bool:
        return self.file.count() >= self.max_entries

    @property
    def count(self) -> int:
        return self.file.count()

    def entry(self, number: int) -> tuple[int, int]:
        """(offset, position)."""
        relative, position = _ENTRY.unpack(self.file.read(number, 1))
        return self.base_offset + int(relative), int(position)

    def last(self) -> tuple[int, int]:
        """(offset, position) of the last entry; (base offset, 0) of an empty index."""
        count = self.file.count()
        if count == 0:
            return self.base_offset, 0
        return self.entry(count - 1)

    def append(self, offset: int, position: int) -> None:
        self.file.add(_ENTRY.pack(offset - self.base_offset, position))

    def position_for(self, offset: int) -> int:
        """Start of a batch at or before the one that holds `offset`; 0 where no entry is that low."""
        number = self._floor(offset - self.base_offset, _OFFSET_AT)
        return self.entry(number)[1] if number >= 0 else 0

    def position_at_or_below(self, position: int) -> int:
        """Start of the last indexed batch that starts at or before `position`; 0 where there is none."""
        number = self._floor(position, _POSITION_AT)
        return self.entry(number)[1] if number >= 0 else 0

    def truncate_to_offset(self, offset: int) -> None:
        """Drop the entries at or past `offset`."""
        self.file.truncate(self._floor(offset - 1 - self.base_offset, _OFFSET_AT) + 1)

    def truncate_to_position(self, position: int) -> None:
        """Drop the entries of batches that start at or past `position`."""
        self.file.truncate(self._floor(position - 1, _POSITION_AT) + 1)

    def check(self, log_size: int) -> None:
        """Raises CorruptLogError where the file cannot be the index of a log of this size."""
        self.file.check_whole()
        offset, position = self.last()
        count = self.file.count()
        if count > 0 and (offset <= self.base_offset - 1 or position >= log_size):
            raise CorruptLogError(
                f"{self.file.path}: last entry (offset {offset}, position {position}) does not fit a segment of "
                f"base offset {self.base_offset} and {log_size} bytes"
            )

    def _floor(self, value: int, field: int) -> int:
        """Number of the last entry whose field is at most `value`; -1 for none."""
        low: i64 = 0
        high: i64 = self.file.count()
        if high == 0:
            return -1
        if self.file.is_resident:
            return _floor_in(self.file.image(), low, high, value, field)
        while high - low > _ENTRIES_PER_PAGE:
            middle = (low + high) // 2
            if _FIELD.unpack_from(self.file.read(middle, 1), field)[0] <= value:
                low = middle
            else:
                high = middle
        page = self.file.read(low, high - low)
        found: i64 = _floor_in(page, 0, len(page) // ENTRY_SIZE, value, field)
        return low + found if found >= 0 else low - 1


def _floor_in(entries: bytes | bytearray, low: i64, high: i64, value: int, field: int) -> int:
    while low < high:
        middle = (low + high) // 2
        if _FIELD.unpack_from(entries, middle * ENTRY_SIZE + field)[0] <= value:
            low = middle + 1
        else:
            high = middle
    return low - 1
