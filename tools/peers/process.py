"""A child process whose output is captured line by line, so that waiting for it is waiting for an event."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import IO, Self

# A line that never comes is a failure; how long "never" is depends on how busy two shared cores are.
READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0

_SET_PARENT_DEATH_SIGNAL = 1
# Looked up before any fork; elsewhere than on Linux there is no such thing.
_PRCTL = getattr(ctypes.CDLL(None), "prctl", None) if sys.platform == "linux" else None
# The same by a program. Code that runs in the child before its program does needs a copy of this whole process, which
# costs a test run a tenth of a broker's start.
_SETPRIV = shutil.which("setpriv") if sys.platform == "linux" else None


class ProcessFailed(Exception):
    """The process ended, or stayed silent, before it said what was awaited; the text has its last lines."""


def _begin(preexec: Callable[[], None] | None) -> None:
    """In the child, before its program: whoever started it may be killed, and must not leave it behind."""
    if _PRCTL is not None:
        _PRCTL(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if preexec is not None:
        preexec()


class LoggedProcess:
    """One running program, its output and errors captured as one stream of `lines` (and in `log_path`)."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        log_path: Path | None = None,
        preexec: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self.command = list(command)
        self.log_path = log_path
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._ended = False
        dies_with_parent = [_SETPRIV, "--pdeathsig", "KILL"] if _SETPRIV is not None and preexec is None else None
        self._child = subprocess.Popen(
            [*(dies_with_parent or ()), *self.command],
            env=dict(os.environ if env is None else env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            preexec_fn=None if dies_with_parent else partial(_begin, preexec),
        )
        stream = self._child.stdout
        assert stream is not None
        self._pump = threading.Thread(target=self._capture, args=(stream,), name=f"{name} log", daemon=True)
        self._pump.start()

    def _capture(self, stream: IO[str]) -> None:
        with stream:
            log = self.log_path.open("a", buffering=1) if self.log_path is not None else None
            try:
                for line in stream:
                    if log is not None:
                        log.write(line)
                    with self._changed:
                        self._lines.append(line.rstrip("\n"))
                        self._changed.notify_all()
            finally:
                if log is not None:
                    log.close()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        return self._child.poll()

    @property
    def lines(self) -> list[str]:
        with self._changed:
            return list(self._lines)

    def lines_after(self, count: int) -> list[str]:
        with self._changed:
            return self._lines[count:]

    def log(self, last: int = 80) -> str:
        return "\n".join(self.lines[-last:])

    def wait_for_line(self, pattern: str, *, timeout_s: float = READY_TIMEOUT_S, after: int = 0) -> re.Match[str]:
        """The first line, from the `after`-th on, that `pattern` is found in."""
        wanted = re.compile(pattern)
        deadline = time.monotonic() + timeout_s
        seen = after
        with self._changed:
            while True:
                for line in self._lines[seen:]:
                    found = wanted.search(line)
                    if found is not None:
                        return found
                seen = max(seen, len(self._lines))
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    break
                self._changed.wait(left)
        if self._ended:
            state = f"ended with {self._child.wait(5)}"
        else:
            state = f"said nothing of it for {timeout_s:.0f} s"
        raise ProcessFailed(f"{self.name}: waited for a line with {pattern!r}, but it {state}:\n{self.log()}")

    def wait(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        code = self._child.wait(timeout_s)
        self._pump.join(timeout_s)
        return code

    def signal(self, number: int) -> None:
        if self._child.poll() is None:
            self._child.send_signal(number)

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """SIGTERM and wait; a process that does not heed it is killed and that is an error."""
        self.signal(signal.SIGTERM)
        try:
            return self.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ProcessFailed(f"{self.name}: still running {timeout_s:.0f} s after SIGTERM:\n{self.log()}") from None

    def kill(self) -> int:
        """SIGKILL: what a crash leaves behind is left behind."""
        self.signal(signal.SIGKILL)
        return self.wait()

    def rss_bytes(self) -> int:
        """Resident memory of the process, as the kernel counts it."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return 0

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.poll() is None:
            self.kill()
        self._pump.join(5)
