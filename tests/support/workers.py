"""`braidlog serve --workers N` as a person runs it, with what tests do to its processes."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path
from typing import Self

from tools.peers.process import LoggedProcess

from support.eventually import eventually

BRAIDLOG = [sys.executable, "-m", "braidlog"]
SETTINGS = ("--set", "braidlog.http.listen=127.0.0.1:0", "--set", "zookeeper.session.timeout.ms=6000")


class WorkersRun:
    """Ready when this returns."""

    def __init__(self, data: Path, count: int, *arguments: str, listen: str = "127.0.0.1:0") -> None:
        words = ["serve", "--workers", str(count), "--data", str(data), "--listen", listen, *SETTINGS, *arguments]
        self.count = count
        self.process = LoggedProcess("workers", [*BRAIDLOG, *words])
        said = self.process.wait_for_line(r"^braidlog: \d+ workers? (?:is|are) ready on (.+) after")[1]
        self.addresses = [each.removeprefix("PLAINTEXT://") for each in said.split(", ")]
        self.broker_ids = [int(self._last(rf"worker-{number} is broker (\d+),")) for number in range(count)]

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses)

    def worker_pid(self, number: int) -> int:
        return int(self._last(rf"worker-{number} (?:is broker \d+|is started again), pid (\d+)"))

    def store_pid(self) -> int:
        return int(self._last(r"braidlog\.workers: (?:the store is served at \S+|store is started again), pid (\d+)"))

    def _last(self, pattern: str) -> str:
        found = [match[1] for line in self.process.lines if (match := re.search(pattern, line)) is not None]
        assert found, f"no line with {pattern!r}:\n{self.process.log()}"
        return str(found[-1])

    def pids(self) -> list[int]:
        return [*map(self.worker_pid, range(self.count)), self.store_pid()]

    def kill_worker(self, number: int) -> None:
        """Until it serves again."""
        seen = len(self.process.lines)
        os.kill(self.worker_pid(number), signal.SIGKILL)
        self.process.wait_for_line(rf"worker-{number} \(pid \d+\) has ended: killed by SIGKILL", after=seen)
        self.process.wait_for_line(rf"worker-{number} is broker \d+, pid", after=seen)

    def kill_store(self) -> None:
        """Until it is started again."""
        seen = len(self.process.lines)
        os.kill(self.store_pid(), signal.SIGKILL)
        self.process.wait_for_line(r"store is started again, pid", after=seen)

    def interrupt(self) -> int:
        """As Ctrl-C; the exit code."""
        self.process.signal(signal.SIGINT)
        return self.process.wait(120)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.__exit__()


def are_gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def await_gone(pids: list[int], within_s: float = 60.0) -> None:
    eventually(lambda: are_gone(pids), within_s)
