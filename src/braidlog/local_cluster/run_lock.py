"""That one program at a time runs what is in a directory, and whether processes that it started are left.

Its processes hold the lock with it: after a kill -9 of the program the next one waits until the last of them has ended.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from braidlog.core.errors import UserError

# Processes whose parent was killed stop by themselves, each in its time.
_PATIENCE_S: Final = 60.0
_POLL_S: Final = 0.05


class RunLock:
    """Held from here on. `program` is what to call it in messages; `say` is told what is waited for."""

    def __init__(self, directory: Path, name: str, program: str, say: Callable[[str], None]) -> None:
        self._directory = directory
        self._program = program
        self.descriptor = os.open(directory / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take(say)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        os.close(self.descriptor)

    def _take(self, say: Callable[[str], None]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        waits = False
        while not self._try():
            owner = os.pread(self.descriptor, 32, 0).decode(errors="replace").strip()
            if owner.isdecimal() and _is_alive(int(owner)):
                raise UserError(
                    f"{self._directory} is in use by another `{self._program}`, pid {owner}: stop that first"
                )
            if time.monotonic() > deadline:
                raise UserError(f"brokers of an earlier run still use {self._directory}: end them first")
            if not waits:
                say("brokers of an earlier run, which was killed, are still stopping: waiting for them")
                waits = True
            time.sleep(_POLL_S)
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, f"{os.getpid()}\n".encode(), 0)

    def _try(self) -> bool:
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
