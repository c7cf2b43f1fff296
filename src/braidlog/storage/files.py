"""The disk as a port: files that grow at their end, and the directory operations that a log needs.

Paths are plain `str`. Every operation raises `OSError`; who knows the data directory turns it into `StorageFault`.
A file that is dropped without `close` closes with its last reference, so a slice on its way to a socket keeps the
descriptor alive while the pool of handles, a rename or a removal has already let go of it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple

from mypy_extensions import mypyc_attr

from braidlog.storage.crash_points import MID_CHECKPOINT, crash_point

_IOV_MAX: Final = 1024
_UNSYNCED_SUFFIX: Final = ".tmp"
_KEEP_SIZE: Final = 1
# No room, or a file system or kernel without it.
_CANNOT_RESERVE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)

Part = bytes | bytearray | memoryview


class DiskUsage(NamedTuple):
    total: int
    free: int


@mypyc_attr(allow_interpreted_subclasses=True)
class File(ABC):
    """One open file."""

    @abstractmethod
    def writev(self, parts: Sequence[Part]) -> None:
        """Append all parts in order; after an error any prefix of them may have been written."""

    @abstractmethod
    def pread(self, size: int, position: int) -> bytes:
        """Up to `size` bytes from `position`; fewer only at the end of the file."""

    @abstractmethod
    def size(self) -> int: ...

    @abstractmethod
    def sync(self) -> None:
        """Return once everything written so far would survive a power cut (the directory entry excepted)."""

    @abstractmethod
    def truncate(self, size: int) -> None: ...

    @abstractmethod
    def reserve(self, size: int) -> bool:
        """Set room aside on the disk for the file to grow to `size`; its content and its size stay as they are.

        False where there is not so much room, or the file system cannot do it. `truncate` gives back what is not used.
        """

    @abstractmethod
    def close(self) -> None:
        """Closing twice is harmless."""

    @abstractmethod
    def fileno(self) -> int:
        """The descriptor for sendfile; files in memory have none and raise OSError."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Files(ABC):
    """The operations on paths."""

    @abstractmethod
    def open_append(self, path: str) -> File:
        """For reading and appending; created empty if missing."""

    @abstractmethod
    def open_read(self, path: str) -> File:
        """For reading only; raises FileNotFoundError if missing."""

    def sync_file(self, path: str) -> None:
        """Make what was written to a file survive a power cut (its directory entry excepted)."""
        file = self.open_read(path)
        try:
            file.sync()
        finally:
            file.close()

    @abstractmethod
    def exists(self, path: str) -> bool: ...

    @abstractmethod
    def is_dir(self, path: str) -> bool: ...

    @abstractmethod
    def listdir(self, path: str) -> list[str]:
        """Names in the directory, sorted, so that no order of the file system's can be observed."""

    @abstractmethod
    def mkdir(self, path: str) -> None:
        """Create the directory and its parents; one that exists is left alone."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Atomic; replaces a file at `target`. Durable only after `sync_dir` of the parent."""

    @abstractmethod
    def sync_dir(self, path: str) -> None:
        """Make creations, renames and removals in this directory survive a power cut."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove one file; raises FileNotFoundError if missing."""

    @abstractmethod
    def rmtree(self, path: str) -> None:
        """Remove a directory and all below; one that is missing already is fine."""

    @abstractmethod
    def size(self, path: str) -> int: ...

    @abstractmethod
    def modified_ms(self, path: str) -> int:
        """When the file was last written, in milliseconds since 1970."""

    @abstractmethod
    def set_modified_ms(self, path: str, when_ms: int) -> None: ...

    @abstractmethod
    def read_bytes(self, path: str) -> bytes: ...

    @abstractmethod
    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """Replace the file as a whole or not at all.

        With `sync` the new content also survives a power cut; without, only a crash of the process, and the file needs
        a checksum or another way to notice that it is torn.
        """

    @abstractmethod
    def disk_usage(self, path: str) -> DiskUsage: ...


class OsFile(File):
    """A descriptor of the operating system."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def writev(self, parts: Sequence[Part]) -> None:
        written = os.writev(self._fd, parts[:_IOV_MAX] if len(parts) > _IOV_MAX else parts)
        total = sum(map(len, parts))
        if written != total:
            self._write_rest(parts, written, total)

    def _write_rest(self, parts: Sequence[Part], written: int, total: int) -> None:
        """Go on after a short write, or after the first IOV_MAX of very many parts."""
        rest = [memoryview(part) for part in parts]
        first = 0
        skipped = written
        while written < total:
            while skipped >= len(rest[first]):
                skipped -= len(rest[first])
                first += 1
            rest[first] = rest[first][skipped:]
            skipped = os.writev(self._fd, rest[first : first + _IOV_MAX])
            if skipped == 0:
                raise OSError(f"{self.path}: the system wrote nothing of {total - written} bytes")
            written += skipped

    def pread(self, size: int, position: int) -> bytes:
        return os.pread(self._fd, size, position)

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def sync(self) -> None:
        sync_data(self._fd)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def reserve(self, size: int) -> bool:
        try:
            _allocate(self._fd, size)
        except OSError as problem:
            if problem.errno not in _CANNOT_RESERVE:
                raise
            # Some of it may have been set aside before the disk was full.
            os.ftruncate(self._fd, self.size())
            return False
        return True

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def fileno(self) -> int:
        return self._fd

    def __del__(self) -> None:
        # Errors cannot be reported from here, and a descriptor is released even when close reports one.
        with contextlib.suppress(OSError):
            self.close()


@mypyc_attr(allow_interpreted_subclasses=True)
class OsFiles(Files):
    """The operating system's files."""

    def open_append(self, path: str) -> File:
        return OsFile(path, os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644))

    def open_read(self, path: str) -> File:
        return OsFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def listdir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def mkdir(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def rmtree(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, when_ms: int) -> None:
        os.utime(path, ns=(when_ms * 1_000_000, when_ms * 1_000_000))

    def read_bytes(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        unsynced = path + _UNSYNCED_SUFFIX
        fd = os.open(unsynced, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            view = memoryview(data)
            while len(view) > 0:
                written = os.write(fd, view)
                view = view[written:]
            if sync:
                sync_data(fd)
        except OSError:
            # On a full disk it would take room that others can use.
            with contextlib.suppress(OSError):
                os.unlink(unsynced)
            raise
        finally:
            os.close(fd)
        crash_point(MID_CHECKPOINT)
        os.replace(unsynced, path)
        if sync:
            self.sync_dir(os.path.dirname(path) or ".")

    def disk_usage(self, path: str) -> DiskUsage:
        usage = shutil.disk_usage(path)
        return DiskUsage(usage.total, usage.free)


def sync_data(fd: int) -> None:
    """fdatasync; on macOS, which has none, a full flush of the drive's cache."""
    if sys.platform == "darwin":
        import fcntl

        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def _allocate(fd: int, size: int) -> None:
    """fallocate without a change of the file's size, which Python's own function does not offer: a reader, and a broker
    that finds the file after a crash, see only what was written."""
    if not sys.platform.startswith("linux"):
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
    import ctypes

    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if fallocate(fd, _KEEP_SIZE, 0, size) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
