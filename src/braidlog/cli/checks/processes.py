"""Who holds a port or a directory, where the operating system tells."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import sys
from collections.abc import Iterator
from typing import Final

_LISTENING: Final = "0A"
# struct flock of 64-bit Linux: type, whence, start, length, pid.
_FLOCK: Final = struct.Struct("hhqqi4x")


def command_of(pid: int, proc: str = "/proc") -> str:
    """A process as a person would recognise it."""
    try:
        with open(f"{proc}/{pid}/cmdline", "rb") as file:
            words = file.read().rstrip(b"\0").replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        words = ""
    return f"process {pid} ({words[:100]})" if words else f"process {pid}"


def listener_on(port: int, proc: str = "/proc") -> int | None:
    """The process that listens on a TCP port; none where there is none or we may not see whose it is."""
    sockets = {f"socket:[{inode}]" for inode in _listening_inodes(port, proc)}
    if not sockets:
        return None
    for pid in _pids(proc):
        directory = f"{proc}/{pid}/fd"
        try:
            for descriptor in os.listdir(directory):
                if os.readlink(f"{directory}/{descriptor}") in sockets:
                    return pid
        except OSError:
            # Gone meanwhile, or another user's.
            continue
    return None


def _listening_inodes(port: int, proc: str) -> Iterator[str]:
    """Inodes of listening sockets: columns local address (HEX:PORT), state and inode of /proc/net/tcp."""
    for table in ("tcp", "tcp6"):
        try:
            with open(f"{proc}/net/{table}", encoding="ascii") as file:
                lines = file.readlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _pids(proc: str) -> list[int]:
    try:
        return sorted(int(name) for name in os.listdir(proc) if name.isdigit())
    except OSError:
        return []


def lock_holder(path: str) -> int | None:
    """The process that has a broker's lock on the file; asked without taking the lock, so no start is disturbed."""
    if not sys.platform.startswith("linux") or struct.calcsize("P") != 8:
        return None
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, query))
        return int(pid) if kind != fcntl.F_UNLCK and pid > 0 else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def open_files_limit(pid: int, proc: str = "/proc") -> int | None:
    """The soft limit of a running process; none where it is not known."""
    try:
        with open(f"{proc}/{pid}/limits", encoding="ascii") as file:
            found = re.search(r"^Max open files\s+(\d+)", file.read(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None


def open_files_count(pid: int, proc: str = "/proc") -> int | None:
    try:
        return len(os.listdir(f"{proc}/{pid}/fd"))
    except OSError:
        return None
