"""Writes a compacted segment, log and indexes, under names that end in `.cleaned` and that no reader opens.

    .index.cleaned      (offset - base: 4 | position of the batch: 4) …           every index.interval.bytes
    .timeindex.cleaned  (largest timestamp so far: 8 | its offset - base: 4) …    ascending; the last one at the end
    .txnindex.cleaned   (version 0: 2 | producer id: 8 | first: 8 | last: 8 | last stable offset: 8) …

A crash leaves files that the next start removes; only a complete set is ever renamed to `.swap`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from braidlog.storage.cleaner.transactions import AbortedTransaction
from braidlog.storage.files import Files

CLEANED_SUFFIX: Final = ".cleaned"
PARTS: Final = (".log", ".index", ".timeindex", ".txnindex")
_INDEX_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_TRANSACTION_ENTRY: Final = Struct(">hqqqq")
_WRITE_BYTES: Final = 1 << 20


class CleanedSegment:
    def __init__(self, files: Files, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        self.base_offset = base_offset
        self.size: int = 0
        self._files = files
        self._stem = f"{directory}/{base_offset:020d}"
        self._interval = index_interval_bytes
        self._since_entry: int = 0
        self._largest_timestamp: int = -1
        self._offset_of_largest: int = base_offset
        self._indexed_timestamp: int = -1
        self._index = bytearray()
        self._time_index = bytearray()
        self._transactions = bytearray()
        self._pending: list[bytes] = []
        self._pending_bytes: int = 0
        remove_cleaned(files, directory, base_offset)
        self._file = files.open_append(self._path(".log"))

    def append(self, batch: bytes, last_offset: int, max_timestamp: int) -> None:
        if max_timestamp > self._largest_timestamp:
            self._largest_timestamp = max_timestamp
            self._offset_of_largest = last_offset
        if self._since_entry > self._interval:
            self._index += _INDEX_ENTRY.pack(last_offset - self.base_offset, self.size)
            self._note_time()
            self._since_entry = 0
        self._since_entry += len(batch)
        self.size += len(batch)
        self._pending.append(batch)
        self._pending_bytes += len(batch)
        if self._pending_bytes >= _WRITE_BYTES:
            self._write()

    def append_aborted(self, transaction: AbortedTransaction) -> None:
        self._transactions += _TRANSACTION_ENTRY.pack(
            0,
            transaction.producer_id,
            transaction.first_offset,
            transaction.last_offset,
            transaction.last_stable_offset,
        )

    def finish(self, modified_ms: int) -> None:
        """Everything on disk, dated like the newest segment that went into it (old tombstones expire by that date)."""
        self._write()
        self._note_time()
        self._file.sync()
        self._file.close()
        self._write_part(".index", self._index)
        self._write_part(".timeindex", self._time_index)
        if self._transactions:
            self._write_part(".txnindex", self._transactions)
        self._files.set_modified_ms(self._path(".log"), modified_ms)

    def discard(self) -> None:
        self._file.close()

    def _note_time(self) -> None:
        if self._largest_timestamp > self._indexed_timestamp:
            self._time_index += _TIME_ENTRY.pack(self._largest_timestamp, self._offset_of_largest - self.base_offset)
            self._indexed_timestamp = self._largest_timestamp

    def _write(self) -> None:
        if self._pending:
            self._file.writev(self._pending)
            self._pending = []
            self._pending_bytes = 0

    def _write_part(self, part: str, content: bytearray) -> None:
        file = self._files.open_append(self._path(part))
        try:
            if content:
                file.writev([content])
            file.sync()
        finally:
            file.close()

    def _path(self, part: str) -> str:
        return self._stem + part + CLEANED_SUFFIX


def remove_cleaned(files: Files, directory: str, base_offset: int) -> None:
    """Forget what an interrupted pass left for this base offset."""
    for part in PARTS:
        path = f"{directory}/{base_offset:020d}{part}{CLEANED_SUFFIX}"
        if files.exists(path):
            files.remove(path)
