"""The few file operations that the embedded store needs, as a port, and its adapter over a directory on disk.

`braidlog-store.format`, one line, says which format the files have and which braidlog used them last:

    {"version":1,"braidlog":"0.1.0"}

A directory without it is of version 1. A later version is refused before any other file is opened.
"""

from __future__ import annotations

import json
import logging
import os
from contextlib import suppress
from typing import Final, Protocol

from braidlog.core.errors import NewerFormatError, UserError, is_disk_full
from braidlog.core.version import VERSION as BRAIDLOG_VERSION


class ReadableFiles(Protocol):
    """Files of one directory by name. Calls block and come from one thread at a time."""

    def names(self) -> list[str]:
        """Sorted."""
        ...

    def read(self, name: str) -> bytes: ...


class JournalFiles(ReadableFiles, Protocol):
    def append(self, name: str, data: bytes) -> None:
        """Write at the end, creating the file; not durable before `sync`."""
        ...

    def sync(self, name: str) -> None:
        """What was appended, and the file's own existence, survives a power cut."""
        ...

    def write_whole(self, name: str, data: bytes) -> None:
        """Durable on return; a crash leaves the old file or the new one, nothing between."""
        ...

    def truncate(self, name: str, size: int) -> None:
        """Durable on return."""
        ...

    def remove(self, name: str) -> None: ...

    def close(self) -> None: ...


# The store may share a data directory with logs, where Kafka minds directories that are no partitions but not files.
PREFIX: Final = "braidlog-store."
FORMAT_VERSION: Final = 1
_FORMAT: Final = "format"
_LOCK: Final = "lock"
# No files of the store's contents.
_OTHERS: Final = frozenset((_FORMAT, _LOCK))

_log = logging.getLogger("braidlog.cluster.store")


def check_format(directory: str) -> bool:
    """Raises where a newer braidlog has used the directory; whether this one was the last to use it."""
    path = os.path.join(directory, PREFIX + _FORMAT)
    try:
        with open(path, "rb") as file:
            found = json.loads(file.read(4096))
        version, written_by = found["version"], found["braidlog"]
        if type(version) is not int or type(written_by) is not str:
            raise TypeError
    except FileNotFoundError:
        return False
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{path} does not say the format of the store: restore it from a backup") from None
    if version > FORMAT_VERSION:
        raise NewerFormatError(path, str(version), str(FORMAT_VERSION), written_by)
    return (version, written_by) == (FORMAT_VERSION, BRAIDLOG_VERSION)


def store_file_names(directory: str) -> list[str]:
    """The names of the store's contents, sorted; without the prefix."""
    with os.scandir(directory) as entries:
        # Files only: a topic may be called `braidlog-store.journal`, and its partitions are directories.
        found = [entry.name for entry in entries if entry.name.startswith(PREFIX) and entry.is_file()]
    names = (name.removeprefix(PREFIX) for name in found if not name.endswith((".tmp", ".lock")))
    return sorted(name for name in names if name not in _OTHERS)


class StoredFiles:
    """The files of a store for reading, also while a broker uses it; no lock, and nothing is changed."""

    def __init__(self, directory: str) -> None:
        check_format(directory)
        self._directory = directory

    def names(self) -> list[str]:
        return store_file_names(self._directory)

    def read(self, name: str) -> bytes:
        with open(os.path.join(self._directory, PREFIX + name), "rb", buffering=0) as file:
            return file.readall()


class OsJournalFiles:
    """Holds a lock while it is open: two brokers on one store would destroy it."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        os.makedirs(directory, exist_ok=True)
        self._lock_fd = self._lock()
        self._appending = ""
        self._fd = -1
        self._is_new = False
        try:
            if not check_format(directory):
                self._note_format()
        except BaseException:
            self.close()
            raise

    def _note_format(self) -> None:
        try:
            self.write_whole(_FORMAT, b'{"version":%d,"braidlog":"%s"}\n' % (FORMAT_VERSION, BRAIDLOG_VERSION.encode()))
        except OSError as problem:
            if not is_disk_full(problem):
                raise
            _log.warning("%s%s was not written: %s", PREFIX, _FORMAT, problem)

    def _lock(self) -> int:
        import fcntl

        fd = os.open(self._path(_LOCK), os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise BlockingIOError(f"{self._directory} is in use by another broker; stop it first") from None
        return fd

    def names(self) -> list[str]:
        return store_file_names(self._directory)

    def read(self, name: str) -> bytes:
        with open(self._path(name), "rb", buffering=0) as file:
            return file.readall()

    def append(self, name: str, data: bytes) -> None:
        if name != self._appending:
            self._open_for_append(name)
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]

    def sync(self, name: str) -> None:
        if name != self._appending:
            self._open_for_append(name)
        getattr(os, "fdatasync", os.fsync)(self._fd)
        if self._is_new:
            self._sync_directory()
            self._is_new = False

    def write_whole(self, name: str, data: bytes) -> None:
        temporary = self._path(name + ".tmp")
        try:
            with open(temporary, "wb", buffering=0) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
                os.fsync(file.fileno())
        except OSError:
            # On a full disk it would take room that others can use.
            with suppress(OSError):
                os.unlink(temporary)
            raise
        os.replace(temporary, self._path(name))
        self._sync_directory()

    def truncate(self, name: str, size: int) -> None:
        with open(self._path(name), "r+b") as file:
            file.truncate(size)
            os.fsync(file.fileno())

    def remove(self, name: str) -> None:
        if name == self._appending:
            self._close_append()
        os.unlink(self._path(name))

    def close(self) -> None:
        self._close_append()
        if self._lock_fd != -1:
            os.close(self._lock_fd)
            self._lock_fd = -1

    def _open_for_append(self, name: str) -> None:
        self._close_append()
        path = self._path(name)
        self._is_new = not os.path.exists(path)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._appending = name

    def _close_append(self) -> None:
        if self._fd != -1:
            os.close(self._fd)
        self._fd, self._appending = -1, ""

    def _sync_directory(self) -> None:
        fd = os.open(self._directory, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, PREFIX + name)
