"""`braidlog …` as processes of their own against a cluster, also with a terminal for what they say meanwhile."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import threading
from contextlib import suppress
from typing import Any, NamedTuple


class Ended(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


class RunningCommand:
    """Standard error is a terminal, so that progress is shown."""

    def __init__(self, bootstrap: str, *words: str) -> None:
        terminal, theirs = pty.openpty()
        environment = {name: value for name, value in os.environ.items() if name not in ("CI", "BRAIDLOG_PROFILE")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "braidlog", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=theirs,
            env=environment | {"BRAIDLOG_BOOTSTRAP": bootstrap, "TERM": "xterm"},
        )
        os.close(theirs)
        self._said: list[bytes] = []
        self._reader = threading.Thread(target=self._read, args=(terminal,), daemon=True)
        self._reader.start()

    def _read(self, terminal: int) -> None:
        # The other end is closed when the process has ended.
        with suppress(OSError):
            while data := os.read(terminal, 4096):
                self._said.append(data)
        os.close(terminal)

    @property
    def said(self) -> str:
        return b"".join(self._said).decode(errors="replace")

    def wait(self, timeout_s: float = 120.0) -> Ended:
        try:
            out, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"the command has not ended after {timeout_s} s: {self.said}") from None
        self._reader.join(10)
        return Ended(self.process.returncode, out.decode(), self.said)

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()
        self._reader.join(10)


def run_command(bootstrap: str, *words: str) -> Ended:
    return RunningCommand(bootstrap, *words).wait()
