"""The segments of a log; each is a `.log` file of batches and its three indexes (hot: compiled by mypyc).

    00000000000000001234.log         batches, from offset 1234 on
    00000000000000001234.index       offset → position          (`offset_index`)
    00000000000000001234.timeindex   timestamp → offset         (`time_index`)
    00000000000000001234.txnindex    aborted transactions       (`txn_index`)

`size` is what was written whole and may be read; the file is longer only while a write is under way or has failed.
"""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from typing import Final

from mypy_extensions import i64

from braidlog.core.slices import FileSlice
from braidlog.storage.files import Files, Part
from braidlog.storage.handles import Handle, HandlePool
from braidlog.storage.index.offset_index import OffsetIndex
from braidlog.storage.index.time_index import TimeIndex
from braidlog.storage.index.transaction_index import TransactionIndex
from braidlog.storage.log.batch_walk import BatchWalk
from braidlog.storage.log.segment_file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    file_name,
)
from braidlog.wire.records.batch import NO_TIMESTAMP

DEFAULT_INTERVAL_BYTES: Final = 4096
DEFAULT_INDEX_BYTES: Final = 10 * 1024 * 1024
_UNREAD: Final = -2
_MAX_HINTS: Final = 32


class LogSegment:
    def __init__(
        self,
        files: Files,
        handles: HandlePool,
        directory: str,
        base_offset: int,
        suffix: str,
        created_ms: int,
        interval_bytes: int,
        index_bytes: int,
    ) -> None:
        self.base_offset = base_offset
        self.suffix = suffix
        self.created_ms = created_ms
        self.interval_bytes = interval_bytes
        # Subtracted from segment.ms, so that segments made together do not all roll together.
        self.jitter_ms = 0
        self._files = files
        self._stem = f"{directory}/{file_name(base_offset)}"
        self.log: Handle = handles.handle(self._stem + LOG_SUFFIX + suffix)
        self.offset_index = OffsetIndex(files, handles, self._stem + INDEX_SUFFIX + suffix, base_offset, index_bytes)
        self.time_index = TimeIndex(files, handles, self._stem + TIME_INDEX_SUFFIX + suffix, base_offset, index_bytes)
        self.txn_index = TransactionIndex(files, handles, self._stem + TXN_INDEX_SUFFIX + suffix)
        self.size: int = 0
        self._since_entry: i64 = 0
        self._max_timestamp: int = NO_TIMESTAMP
        self._offset_of_max_timestamp: int = base_offset
        self._first_timestamp: int = NO_TIMESTAMP
        # Offset → position where the batch that holds it, or the next one, starts: where writes ended and readers
        # will go on. Saves the index look-up and the walk for everyone who reads on from where they were.
        self._hints: dict[int, int] = {base_offset: 0}
        # A failed write may have left bytes beyond `size` that could not be cut off.
        self._torn = False
        # They were, but a power cut might bring them back: `sync_truncation` before nothing more is written here.
        self.truncation_unsynced = False
        # The file system may hold more room for the log than it needs; `settle` gives it back.
        self.reserved = False

    @staticmethod
    def create(
        files: Files,
        handles: HandlePool,
        directory: str,
        base_offset: int,
        *,
        created_ms: int,
        suffix: str = "",
        interval_bytes: int = DEFAULT_INTERVAL_BYTES,
        index_bytes: int = DEFAULT_INDEX_BYTES,
        reserve_bytes: int = 0,
    ) -> LogSegment:
        """A new, empty segment; files of that name that a failed attempt left are emptied.

        Room for `reserve_bytes` is set aside; `reserved` says whether that could be had.
        """
        segment = LogSegment(files, handles, directory, base_offset, suffix, created_ms, interval_bytes, index_bytes)
        file = segment.log.get()
        if file.size() > 0:
            file.truncate(0)
        segment.offset_index.file.truncate(0)
        segment.time_index.file.truncate(0)
        segment.offset_index.file.flush()
        segment.time_index.file.flush()
        segment.txn_index.reset()
        if reserve_bytes > 0:
            segment.reserved = file.reserve(reserve_bytes)
        return segment

    @staticmethod
    def open(
        files: Files,
        handles: HandlePool,
        directory: str,
        base_offset: int,
        *,
        created_ms: int,
        suffix: str = "",
        interval_bytes: int = DEFAULT_INTERVAL_BYTES,
        index_bytes: int = DEFAULT_INDEX_BYTES,
    ) -> LogSegment:
        """An existing one; nothing but the size is read before it is needed."""
        segment = LogSegment(files, handles, directory, base_offset, suffix, created_ms, interval_bytes, index_bytes)
        segment.size = files.size(segment.log.path)
        segment._max_timestamp = _UNREAD
        segment._first_timestamp = _UNREAD
        return segment

    # --- facts

    @property
    def log_path(self) -> str:
        return self.log.path

    @property
    def max_timestamp(self) -> int:
        """Largest timestamp of its records; -1 without any."""
        if self._max_timestamp == _UNREAD:
            self._max_timestamp, self._offset_of_max_timestamp = self.time_index.last()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """Last offset of the batch that holds it."""
        return self._offset_of_max_timestamp if self.max_timestamp >= 0 else self.base_offset

    @property
    def largest_timestamp(self) -> int:
        """`max_timestamp`, or when the file was last written where no record carries one."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self._files.modified_ms(self.log.path)

    @property
    def first_batch_timestamp(self) -> int:
        """Largest timestamp of the first batch, from which the age of the segment counts; -1 without any."""
        if self._first_timestamp == _UNREAD:
            walk = self.walk(0)
            self._first_timestamp = walk.max_timestamp if walk.advance() else NO_TIMESTAMP
        return self._first_timestamp

    def read_next_offset(self) -> int:
        """The offset after its last batch, found from the last index entry on; its base offset when empty."""
        walk = self.walk(self.offset_index.last()[1])
        next_offset = self.base_offset
        while walk.advance():
            next_offset = walk.last_offset + 1
        return next_offset

    # --- append

    def append(
        self,
        parts: list[Part],
        size: int,
        last_offset: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
    ) -> None:
        """One batch, written at once and indexed."""
        position = self.size
        self.write(parts, size)
        self.index_batch(position, size, last_offset, max_timestamp, offset_of_max_timestamp)

    def write(self, parts: list[Part], size: int) -> None:
        """Append whole batches; on OSError the file is as it was before. `index_batch` each of them afterwards."""
        file = self.log.get()
        if self._torn:
            file.truncate(self.size)
            self._torn = False
        # Whatever may fail comes before the write: noting the batches afterwards must not.
        self.offset_index.file.image()
        self.time_index.file.image()
        try:
            file.writev(parts)
        except OSError:
            self._torn = True
            self.truncation_unsynced = True
            file.truncate(self.size)
            self._torn = False
            raise
        self.size += size

    def undo_write(self, size: int) -> None:
        """Undo writes that were not acknowledged: the file is cut to `size`."""
        self.size = size
        self._torn = True
        self.truncation_unsynced = True
        self.log.get().truncate(size)
        self._torn = False

    def sync_truncation(self) -> None:
        """Nothing lies behind the last batch, also after a power cut; costs a sync, and only after a failed write."""
        if self.truncation_unsynced:
            file = self.log.get()
            file.truncate(self.size)
            self._torn = False
            file.sync()
            self.truncation_unsynced = False

    def index_batch(
        self, position: int, size: int, last_offset: int, max_timestamp: int, offset_of_max_timestamp: int
    ) -> None:
        """Index the batch that was written at `position`."""
        if position == 0:
            self._first_timestamp = max_timestamp
        if max_timestamp > self.max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = offset_of_max_timestamp
        if self._since_entry > self.interval_bytes:
            self.offset_index.append(last_offset, position)
            if self._max_timestamp >= 0:
                self.time_index.append(self._max_timestamp, self._offset_of_max_timestamp)
            self._since_entry = 0
        self._since_entry += size

    def remember_end_position(self, next_offset: int) -> None:
        """Readers that have read everything will ask for `next_offset` at the current end."""
        self._hint(next_offset, self.size)

    # --- read

    def walk(self, position: int, chunk_size: int = 8192) -> BatchWalk:
        return BatchWalk(self.log.get(), self.log.path, position, self.size, chunk_size)

    def read_at(self, size: int, position: int) -> bytes:
        return self.log.get().pread(size, position)

    def slice(self, position: int, size: int) -> FileSlice:
        return FileSlice(self.log.get(), position, size)

    def position_of(self, offset: int) -> int:
        """Where the first batch starts whose last offset is at or past `offset`; `size` for none."""
        known = self._hints.get(offset)
        if known is not None:
            return known
        walk = self.walk(self.offset_index.position_for(offset))
        while walk.advance():
            if walk.last_offset >= offset:
                self._hint(offset, walk.position)
                return walk.position
        return self.size

    def fit(self, start: int, stop: int, max_bytes: int) -> tuple[int, int]:
        """(end, offset after it) of as many whole batches of `start` … `stop` as `max_bytes` hold.

        The end is `start` where not even the first one fits.
        """
        limit = start + max_bytes
        walk = self.walk(max(self.offset_index.position_at_or_below(min(limit, stop)), start))
        if walk.position > start:
            # The indexed batch may itself be too large; the ones before it fit in any case.
            end = walk.position
            next_offset = -1
        else:
            end = start
            next_offset = self.base_offset
        while walk.advance() and walk.end <= limit and walk.position < stop:
            end = walk.end
            next_offset = walk.last_offset + 1
        if next_offset == -1:
            # `walk` stands on the batch that did not fit, so what comes next is its first offset.
            next_offset = walk.base_offset
        if end > start:
            self._hint(next_offset, end)
        return end, next_offset

    def batch_at(self, position: int) -> BatchWalk:
        """A walk that stands on the batch at `position`."""
        walk = self.walk(position)
        walk.advance()
        return walk

    def _hint(self, offset: int, position: int) -> None:
        hints = self._hints
        if offset not in hints:
            if len(hints) >= _MAX_HINTS:
                del hints[next(iter(hints))]
            hints[offset] = position

    # --- truncate, rebuild

    def truncate_to(self, offset: int) -> None:
        """Remove the batches that reach to `offset` or past it."""
        self.truncate_at(self.position_of(offset), offset)

    def truncate_at(self, position: int, offset: int) -> None:
        """Cut the file at `position`, a batch boundary; indexes lose what lies at or past `offset`."""
        self._hints = {self.base_offset: 0}
        self.offset_index.truncate_to_position(position)
        self.time_index.truncate_to_offset(offset)
        self.txn_index.truncate_to_offset(offset)
        self.log.get().truncate(position)
        self.size = position
        self._since_entry = position - self.offset_index.last()[1]
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset
        self._first_timestamp = NO_TIMESTAMP if position == 0 else _UNREAD
        # The last entry counts up to its offset; batches after it are read.
        timestamp, last = self.time_index.last()
        walk = self.walk(self.offset_index.position_for(last) if timestamp >= 0 else 0)
        while walk.advance():
            if walk.max_timestamp > timestamp:
                timestamp, last = walk.max_timestamp, walk.last_offset
        if timestamp >= 0:
            self._max_timestamp, self._offset_of_max_timestamp = timestamp, last

    def begin_rebuild(self) -> None:
        """Forget what the indexes say; `index_batch` of every batch from the first on builds them anew."""
        self._hints = {self.base_offset: 0}
        self.offset_index.file.truncate(0)
        self.time_index.file.truncate(0)
        self._since_entry = 0
        self._max_timestamp = self._first_timestamp = NO_TIMESTAMP
        self._offset_of_max_timestamp = self.base_offset

    def resume_appending(self) -> None:
        """Take up an opened segment as the active one."""
        self._since_entry = self.size - self.offset_index.last()[1]

    # --- files

    def write_indexes(self) -> None:
        """Bring the index files up to date; they stay in memory."""
        self._close_time_index()
        self.offset_index.file.flush()
        self.time_index.file.flush()

    @property
    def has_padded_index(self) -> bool:
        return self.offset_index.file.is_padded or self.time_index.file.is_padded

    def become_inactive(self) -> None:
        """No more appends: complete the indexes on disk and free their memory, and what was reserved."""
        if self.reserved:
            self.log.get().truncate(self.size)
            self.reserved = False
        self._close_time_index()
        self.offset_index.file.flush_and_unload()
        self.time_index.file.flush_and_unload()

    def _close_time_index(self) -> None:
        # An index that was never looked at has nothing to add: opening read the timestamp from it.
        if self._max_timestamp >= 0:
            self.time_index.append(self._max_timestamp, self._offset_of_max_timestamp)

    def sync(self) -> None:
        """Make the batches, and the indexes of a settled segment, survive a power cut. Any thread."""
        self.log.get().sync()

    def sync_indexes(self) -> None:
        self.offset_index.file.sync()
        self.time_index.file.sync()
        self.txn_index.sync()

    def paths(self) -> list[str]:
        """All files that a segment may have, in the order of `SUFFIXES`."""
        return [self.txn_index.path, self.time_index.file.path, self.offset_index.file.path, self.log.path]

    def change_suffix(self, suffix: str) -> None:
        """Rename the files, such as from `.cleaned` to `.swap`, all or none; open slices stay readable."""
        renamed: list[tuple[str, str]] = []
        try:
            for path in self.paths():
                if self._files.exists(path):
                    bare = path[: len(path) - len(self.suffix)] if self.suffix else path
                    self._files.rename(path, bare + suffix)
                    renamed.append((path, bare + suffix))
        except OSError:
            for path, new_path in renamed:
                with contextlib.suppress(OSError):
                    self._files.rename(new_path, path)
            raise
        self.suffix = suffix
        self._name_files()

    def move_to(self, directory: str) -> None:
        """The directory was renamed."""
        self._stem = f"{directory}/{file_name(self.base_offset)}"
        self._name_files()

    def _name_files(self) -> None:
        self.log.path = self._stem + LOG_SUFFIX + self.suffix
        self.offset_index.file.move(self._stem + INDEX_SUFFIX + self.suffix)
        self.time_index.file.move(self._stem + TIME_INDEX_SUFFIX + self.suffix)
        self.txn_index.move(self._stem + TXN_INDEX_SUFFIX + self.suffix)

    def release(self) -> None:
        """Let go of the files without writing anything."""
        self.log.release()
        self.offset_index.file.release()
        self.time_index.file.release()
        self.txn_index.release()

    def close(self) -> None:
        """Complete the indexes and let go of the files."""
        self.become_inactive()
        self.release()

    def forget(self) -> None:
        """The files are about to go and must not be opened any more."""
        self.release()
        self.log.forget()
        self.txn_index.forget()

    def remove(self) -> None:
        """Remove the files, the log last."""
        self.forget()
        for path in self.paths():
            if self._files.exists(path):
                self._files.remove(path)


class LogSegments:
    """Never empty once the log is open; the last one is active."""

    def __init__(self) -> None:
        self.items: list[LogSegment] = []
        self._bases: list[int] = []

    @property
    def active(self) -> LogSegment:
        return self.items[-1]

    @property
    def first(self) -> LogSegment:
        return self.items[0]

    def add(self, segment: LogSegment) -> None:
        """One of the same base offset is replaced."""
        at = bisect_left(self._bases, segment.base_offset)
        if at < len(self._bases) and self._bases[at] == segment.base_offset:
            self.items[at] = segment
        else:
            self.items.insert(at, segment)
            self._bases.insert(at, segment.base_offset)

    def remove(self, segment: LogSegment) -> None:
        """This very segment; one that replaced it stays."""
        at = bisect_left(self._bases, segment.base_offset)
        if at < len(self._bases) and self.items[at] is segment:
            del self.items[at]
            del self._bases[at]

    def floor(self, offset: int) -> int:
        """Number of the segment that covers `offset`; the first one's for an offset below all."""
        return max(bisect_right(self._bases, offset) - 1, 0)
