"""A budget of open files: thousands of segments share the few descriptors that the process may hold.

Every data file is known by a `Handle`, which opens it on first use. When the pool is over its capacity, handles that
were not used since the pool's hand last passed them lose their file (second chance, so a use costs one attribute
write). Losing it means dropping the reference: what still reads from the file (a slice being sent, a sync in
another thread) keeps it open until done.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from typing import Final

from braidlog.storage.files import File, Files

_DEFAULT_LIMIT: Final = 1024
_SMALLEST_CAPACITY: Final = 64
# Connections, listeners, the coordination store and libraries get the other part of the process's descriptors.
_SHARE: Final = 0.5


def capacity_from_limit() -> int:
    """How many files the pool may keep open: half of what RLIMIT_NOFILE grants the process."""
    try:
        import resource

        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except (ImportError, OSError):
        limit = _DEFAULT_LIMIT
    if limit < 0 or limit > 1 << 20:
        limit = 1 << 20
    return max(int(limit * _SHARE), _SMALLEST_CAPACITY)


class Handle:
    """A file that is open when it is needed; `path` may change by a rename, the open file does not mind."""

    __slots__ = ("_pool", "appendable", "file", "gone", "path", "used")

    def __init__(self, pool: HandlePool, path: str, appendable: bool) -> None:
        self._pool = pool
        self.path = path
        self.appendable = appendable
        # None while closed. Set and cleared only by the pool, under its lock.
        self.file: File | None = None
        self.used = False
        self.gone = False

    def get(self) -> File:
        """The open file; a caller that keeps it keeps it open."""
        file = self.file
        if file is None:
            return self._pool.open(self)
        self.used = True
        return file

    def release(self) -> None:
        """Close as soon as the file is not used elsewhere; a later `get` opens it again."""
        self._pool.release(self)

    def forget(self) -> None:
        """The file is about to be removed: from now on `get` raises FileNotFoundError.

        Without this a sync in another thread could bring an empty file of that name back.
        """
        self._pool.release(self, gone=True)


class HandlePool:
    """All handles of the broker, of which at most `capacity` are open (save those in use beyond their eviction)."""

    def __init__(self, files: Files, capacity: int | None = None) -> None:
        self._files = files
        self.capacity = capacity_from_limit() if capacity is None else max(capacity, 1)
        self._open: deque[Handle] = deque()
        # Handles are opened from the owning thread and by syncs in executors.
        self._lock = threading.Lock()
        self.evictions = 0

    @property
    def open_count(self) -> int:
        return len(self._open)

    def handle(self, path: str, *, appendable: bool = True) -> Handle:
        return Handle(self, path, appendable)

    def open(self, handle: Handle) -> File:
        with self._lock:
            file = handle.file
            if handle.gone:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), handle.path)
            if file is None:
                # Room is made first: with every descriptor taken, opening would fail.
                while len(self._open) >= self.capacity:
                    self._evict_one()
                if handle.appendable:
                    file = self._files.open_append(handle.path)
                else:
                    file = self._files.open_read(handle.path)
                handle.file = file
                self._open.append(handle)
                # One use earns no second chance, so a scan over many cold files does not push the busy ones out.
                handle.used = False
            return file

    def release(self, handle: Handle, *, gone: bool = False) -> None:
        with self._lock:
            handle.gone = handle.gone or gone
            if handle.file is not None:
                handle.file = None
                self._open.remove(handle)

    def _evict_one(self) -> None:
        while True:
            candidate = self._open.popleft()
            if candidate.used:
                candidate.used = False
                self._open.append(candidate)
            else:
                candidate.file = None
                self.evictions += 1
                return
