"""Writes a compacted segment, log and indexes, under names that end in `.cleaned` and that no reader opens.

A crash leaves files that the next start removes; only a complete set is ever renamed to `.swap`.
"""

from __future__ import annotations

from typing import Final

from braidlog.storage.files import Files, Part
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.transaction_index import AbortedTxn
from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.log.segment_file_names import CLEANED_SUFFIX, SUFFIXES, file_name

_WRITE_BYTES: Final = 1 << 20


class CleanedSegment:
    def __init__(
        self, files: Files, handles: HandlePool, directory: str, base_offset: int, interval_bytes: int, index_bytes: int
    ) -> None:
        self.base_offset = base_offset
        self.size: int = 0
        self._files = files
        remove_cleaned(files, directory, base_offset)
        self._segment = LogSegment.create(
            files,
            handles,
            directory,
            base_offset,
            created_ms=0,
            suffix=CLEANED_SUFFIX,
            interval_bytes=interval_bytes,
            index_bytes=index_bytes,
        )
        self._pending: list[Part] = []
        # (size, last offset, largest timestamp) of each pending batch.
        self._notes: list[tuple[int, int, int]] = []
        self._pending_bytes: int = 0

    def append(self, batch: bytes, last_offset: int, max_timestamp: int) -> None:
        self.size += len(batch)
        self._pending.append(batch)
        self._notes.append((len(batch), last_offset, max_timestamp))
        self._pending_bytes += len(batch)
        if self._pending_bytes >= _WRITE_BYTES:
            self._write()

    def append_aborted(self, transaction: AbortedTxn) -> None:
        self._segment.txn_index.append(transaction)

    def finish(self, modified_ms: int) -> None:
        """Everything on disk, dated like the newest segment that went into it (old tombstones expire by that date)."""
        self._write()
        self._segment.become_inactive()
        self._segment.sync()
        self._segment.sync_indexes()
        self._segment.release()
        self._files.set_modified_ms(self._segment.log_path, modified_ms)

    def discard(self) -> None:
        self._segment.remove()

    def _write(self) -> None:
        if not self._pending:
            return
        position = self._segment.size
        self._segment.write(self._pending, self._pending_bytes)
        for size, last_offset, max_timestamp in self._notes:
            self._segment.index_batch(position, size, last_offset, max_timestamp, last_offset)
            position += size
        self._pending = []
        self._notes = []
        self._pending_bytes = 0


def remove_cleaned(files: Files, directory: str, base_offset: int) -> None:
    """Forget what an interrupted pass left for this base offset."""
    for suffix in SUFFIXES:
        path = f"{directory}/{file_name(base_offset, suffix)}{CLEANED_SUFFIX}"
        if files.exists(path):
            files.remove(path)
