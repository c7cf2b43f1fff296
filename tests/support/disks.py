"""Disks that run full, turn read-only or break: a small tmpfs in a mount namespace of its own, and a library that
makes system calls on chosen paths fail.

Root ignores permissions, so a directory cannot be made unwritable for a broker that root runs; a file system can.
"""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from support.preloaded import preloaded_library

FAILING_CALLS = "failing_calls.c"


class SmallDisk:
    """A tmpfs that only programs started with `prefix` see at `path`; the test reaches it through `inside`."""

    def __init__(self, path: Path, holder: subprocess.Popen[str]) -> None:
        self.path = path
        self._holder = holder
        self.prefix = ["nsenter", "-t", str(holder.pid), "-m", "--"]

    @property
    def inside(self) -> Path:
        return Path(f"/proc/{self._holder.pid}/root{self.path}")

    @property
    def filler(self) -> Path:
        return self.inside / "filler"

    def fill(self, leave: int = 0) -> None:
        """Take all the room but `leave` bytes."""
        usage = os.statvfs(self.inside)
        with self.filler.open("ab") as file:
            left = usage.f_bavail * usage.f_frsize - leave
            while left > 0:
                try:
                    left -= os.write(file.fileno(), bytes(min(left, 4096)))
                except OSError as problem:
                    if problem.errno != errno.ENOSPC:
                        raise
                    return

    def free(self) -> None:
        self.filler.unlink()

    def remount(self, mode: str) -> None:
        """`ro` or `rw`; fails while a file on it is open for writing."""
        subprocess.run([*self.prefix, "mount", "-o", f"remount,{mode}", str(self.path)], check=True)


@contextmanager
def small_disk(path: Path, size: int) -> Iterator[SmallDisk]:
    """Skips the test where this process may not mount."""
    path.mkdir(parents=True, exist_ok=True)
    for program in ("unshare", "nsenter", "mount"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: no file system of its own for this test")
    script = f'mount -t tmpfs -o size={size} tmpfs "$1" && echo mounted && exec cat'
    holder = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", script, "sh", str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stderr is not None
    assert holder.stdin is not None
    try:
        if holder.stdout.readline().strip() != "mounted":
            pytest.skip(f"cannot mount a tmpfs in a mount namespace: {holder.stderr.read().strip()}")
        yield SmallDisk(path, holder)
    finally:
        holder.stdin.close()  # the holder's cat ends, and with it the namespace and its mount
        holder.wait(30)
        holder.stdout.close()
        holder.stderr.close()


class FailingCalls:
    """Makes calls on paths below `path` fail with an errno of choice, in programs that run with `env`."""

    def __init__(self, library: Path, switch: Path, path: Path) -> None:
        self.path = path
        self._switch = switch
        self.env = {
            "LD_PRELOAD": str(library),
            "FAILING_CALLS_UNDER": str(path),
            "FAILING_CALLS_SWITCH": str(switch),
        }

    def fail(self, calls: str, number: int) -> None:
        """`calls`: letters of write, sync, read, create, such as "wsc"."""
        prepared = self._switch.with_suffix(".new")
        prepared.write_text(f"{number} {calls}")
        prepared.rename(self._switch)

    def slow(self, calls: str, milliseconds: int) -> None:
        """Each of these calls takes so long more."""
        self.fail(calls, -milliseconds)

    def heal(self) -> None:
        self._switch.unlink()


def failing_calls(place: Path, path: Path) -> FailingCalls:
    """Skips the test where there is no C compiler."""
    return FailingCalls(preloaded_library(FAILING_CALLS, place), place / "failing-calls", path)
