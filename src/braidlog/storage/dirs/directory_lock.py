"""The `.lock` file that keeps two brokers from sharing a data directory.

Two kinds of lock on one file: an fcntl range lock, which is what a Java broker takes and which knows its holder's pid;
and flock, because range locks do not stop a second broker inside the same process.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import sys
from typing import Final, Protocol

from braidlog.core.errors import StorageFault, UserError

LOCK_NAME: Final = ".lock"
# struct flock of 64-bit Linux: type, whence, start, length, pid.
_FLOCK: Final = struct.Struct("hhqqi4x")


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class NoLock:
    """For files that no other process can see."""

    def release(self) -> None:
        return None


class OsDirectoryLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def lock_directory(directory: str) -> OsDirectoryLock:
    """Hold the directory until released; UserError if another broker has it, StorageFault if the disk refuses."""
    path = os.path.join(directory, LOCK_NAME)
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as problem:
        raise StorageFault(directory, f"cannot open {path}: {problem}") from problem
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as problem:
        holder = _holder(fd)
        os.close(fd)
        if problem.errno not in (errno.EAGAIN, errno.EACCES):
            raise StorageFault(directory, f"cannot lock {path}: {problem}") from problem
        by = f"process {holder}" if holder else "another broker"
        raise UserError(
            f"data directory {directory} is in use by {by}: stop it first, or give this broker its own log.dirs"
        ) from None
    return OsDirectoryLock(fd)


def _holder(fd: int) -> int | None:
    """The pid that holds the range lock; none where the system does not say or it is a flock of our own process."""
    if not sys.platform.startswith("linux") or struct.calcsize("P") != 8:
        return None
    with contextlib.suppress(OSError):
        query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, query))
        if kind != fcntl.F_UNLCK and pid > 0:
            return int(pid)
    return None
