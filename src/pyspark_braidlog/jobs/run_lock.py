"""Who runs a query: a lock on a file in its checkpoint, which the system lets go of however the process ends.

Only `braidlog pipeline run` takes it; of queries that other programs run, only the time of the last write is known.
"""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import Final

_NAME: Final = ".braidlog-run.lock"


class RunLock:
    """Held from `take` to `release`, or until the process is gone."""

    def __init__(self, checkpoint: Path) -> None:
        self._path = checkpoint / _NAME
        self._file: int | None = None

    def take(self) -> bool:
        """Whether it is ours now; a directory that cannot be written to has no lock."""
        try:
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError:
            return True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            return False
        os.ftruncate(file, 0)
        os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        self._file = file
        return True

    def release(self) -> None:
        """When the query is stopped: the file's time is then that of the end, after all that the query wrote."""
        if self._file is not None:
            os.utime(self._file)
            os.close(self._file)
            self._file = None

    def released_at_s(self) -> float | None:
        """When the last run ended, by the clock of the file system; of one that was killed, when it began."""
        try:
            return self._path.stat().st_mtime if self.holder() is None else None
        except OSError:
            return None

    def holder(self) -> str | None:
        """Who has it, or None; never takes it from anybody."""
        try:
            file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return os.pread(file, 200, 0).decode(errors="replace").strip() or "another process"
        finally:
            os.close(file)
        return None
