"""A file of fixed-size entries in ascending order, the common part of offset and time index (hot: compiled by mypyc).

While entries are added the whole file is kept as one byte image in memory and what is new is appended to the file at
`flush`; a crash loses at most entries that recovery can compute again. A segment that is no longer written settles:
the image goes, and look-ups read a few pages through the handle pool. Nothing is mapped, so a truncated or failing
disk is an exception and never a signal.

Kafka gives the index of an active segment its full size at once and trims it when the segment is closed. After a
crash of Kafka the file therefore ends in zeros, which are no entries.
"""

from __future__ import annotations

from typing import Final

from braidlog.core.errors import CorruptLogError
from braidlog.storage.files import Files
from braidlog.storage.handles import Handle, HandlePool

PAGE_BYTES: Final = 4096
_UNKNOWN: Final = -1


class IndexFile:
    """Entries 0 … `count()` - 1 of `entry_size` bytes."""

    def __init__(self, files: Files, handles: HandlePool, path: str, entry_size: int) -> None:
        self.path = path
        self.entry_size = entry_size
        self._files = files
        self._handle: Handle = handles.handle(path, appendable=False)
        self._image: bytearray | None = None
        # Entries; unknown until the file was looked at.
        self._count = _UNKNOWN
        # Bytes that the file has on disk, of which the first `_clean` are the image's.
        self._file_size = 0
        self._clean = 0

    def count(self) -> int:
        if self._count == _UNKNOWN:
            self._measure()
        return self._count

    @property
    def is_padded(self) -> bool:
        """Whether the file goes on after its entries, as one of a crashed Kafka does."""
        return self._count != _UNKNOWN and self._count * self.entry_size < self._file_size

    @property
    def is_resident(self) -> bool:
        return self._image is not None

    def image(self) -> bytearray:
        """All entries in memory, read from the file where they are not yet."""
        image = self._image
        if image is None:
            size = self.count() * self.entry_size
            image = bytearray(self._handle.get().pread(size, 0)) if size > 0 else bytearray()
            self._image = image
            self._clean = size
            self._handle.release()
        return image

    def read(self, first: int, count: int) -> bytes:
        """`count` entries from `first` on."""
        start = first * self.entry_size
        image = self._image
        if image is not None:
            return bytes(image[start : start + count * self.entry_size])
        return self._handle.get().pread(count * self.entry_size, start)

    def add(self, entry: bytes) -> None:
        image = self.image()
        image += entry
        self._count += 1

    def truncate(self, count: int) -> None:
        """Keep the first `count` entries; the file follows at the next flush."""
        if count < self.count():
            size = count * self.entry_size
            del self.image()[size:]
            self._count = count
            self._clean = min(self._clean, size)

    def flush(self) -> None:
        """Bring the file to exactly the entries that there are, and into being if it was missing."""
        image = self._image
        if image is None:
            if self.count() * self.entry_size == self._file_size and self._files.exists(self.path):
                return
            image = self.image()
        if self._clean == len(image) == self._file_size and self._file_size > 0:
            return
        self._handle.release()
        try:
            file = self._files.open_append(self.path)
            try:
                if self._file_size != self._clean:
                    file.truncate(self._clean)
                if self._clean < len(image):
                    file.writev([bytes(image[self._clean :])])
            finally:
                file.close()
        except OSError:
            # Any part of it may be in the file: the next flush cuts that off first.
            self._file_size = _UNKNOWN
            raise
        self._clean = self._file_size = len(image)

    def flush_and_unload(self) -> None:
        """Flush, and keep no more than the path in memory."""
        self.flush()
        self._image = None
        self._handle.release()

    def sync(self) -> None:
        """Make a flushed file survive a power cut; one that could not be flushed is built again. Any thread."""
        if self._file_size != _UNKNOWN:
            self._handle.get().sync()

    def release(self) -> None:
        """Let go of the file without writing anything."""
        self._image = None
        self._count = _UNKNOWN
        self._handle.release()

    def check_whole(self) -> None:
        """Raises CorruptLogError where the file's size is no multiple of an entry's."""
        self.count()
        if self._file_size % self.entry_size != 0:
            raise CorruptLogError(f"{self.path}: {self._file_size} bytes are not whole {self.entry_size}-byte entries")

    def move(self, path: str) -> None:
        """The file was renamed to `path`."""
        self.path = path
        self._handle.path = path

    def _measure(self) -> None:
        if not self._files.exists(self.path):
            self._file_size = 0
            self._count = 0
            return
        self._file_size = self._files.size(self.path)
        entries = self._file_size // self.entry_size
        self._count = entries
        if entries > 0 and self._is_zero(entries - 1):
            self._count = self._count_before_zeros(entries)

    def _is_zero(self, entry: int) -> bool:
        return not any(self._handle.get().pread(self.entry_size, entry * self.entry_size))

    def _count_before_zeros(self, entries: int) -> int:
        low = 0
        high = entries
        while low < high:
            middle = (low + high) // 2
            if self._is_zero(middle):
                high = middle
            else:
                low = middle + 1
        return low
