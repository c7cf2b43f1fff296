"""The clients of an attack, each a process of its own so that none takes another's time, and the broker's memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from support.attacks.catalog import ATTACKS

TESTS = Path(__file__).parents[2]
PATH = os.pathsep.join([str(TESTS), str(TESTS.parent), os.environ.get("PYTHONPATH", "")])
# Preparing may mean thousands of partitions on a busy machine.
READY_S = 240.0
LANDED_S = 120.0
STOP_S = 60.0


class ClientFailed(Exception):
    """A client's process ended, or said nothing, where it should have said something."""


class _Client:
    """A process that is told by its standard input and tells by the lines of its output."""

    def __init__(self, *arguments: str) -> None:
        self.name = arguments[0]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.attacks", *arguments],
            env={**os.environ, "PYTHONPATH": PATH},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._ended = False
        threading.Thread(target=self._capture, name=self.name, daemon=True).start()

    def _capture(self) -> None:
        output: IO[str] | None = self._process.stdout
        assert output is not None
        with output:
            for line in output:
                with self._changed:
                    self._lines.append(line.strip())
                    self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _await(self, line: str, seconds: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: line in self._lines or self._ended, seconds)
            if line not in self._lines:
                state = f"ended with {self._process.wait(5)}" if self._ended else f"did not say so in {seconds:.0f} s"
                raise ClientFailed(f"{self.name}: waited for {line!r}, but it {state}: {self._lines[-3:]}")

    def tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def stop(self) -> None:
        """End of input, and the end of the process; killed if it does not heed it."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise ClientFailed(f"{self.name} did not end within {STOP_S:.0f} s") from None
        finally:
            self._process.wait()
        with self._changed:
            self._changed.wait_for(lambda: self._ended, STOP_S)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class RunningAttack(_Client):
    """An attack that is prepared when this returns; `begin` sets it off."""

    def __init__(self, name: str, port: int, scale: float = 1.0) -> None:
        assert name in ATTACKS, name
        super().__init__(name, str(port), str(scale))
        try:
            self._await("ready", READY_S)
        except ClientFailed:
            self.kill()
            raise

    def begin(self) -> None:
        self.tell("begin")

    def await_landed(self, seconds: float = LANDED_S) -> None:
        self._await("landed", seconds)

    def has_landed_within(self, seconds: float) -> bool:
        """Whether it had its whole effect by then; a broker may also be slow in taking it."""
        with self._changed:
            return self._changed.wait_for(lambda: "landed" in self._lines, seconds)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def finish(self) -> dict[str, int]:
        """Stop it; what it counted: rounds and answers, connections closed by the broker or stuck, bytes sent."""
        self.stop()
        if self._process.returncode != 0:
            raise ClientFailed(f"{self.name} ended with {self._process.returncode}")
        counts: dict[str, int] = json.loads(self._lines[-1])
        return counts


@dataclass
class Latencies:
    """Milliseconds, sorted; records without an answer count with how long they have waited."""

    values: list[float] = field(default_factory=list, repr=False)
    broken: list[str] = field(default_factory=list)

    def percentile(self, share: float) -> float:
        return self.values[min(len(self.values) - 1, int(len(self.values) * share))] if self.values else float("inf")

    @property
    def p50(self) -> float:
        return self.percentile(0.5)

    @property
    def p99(self) -> float:
        return self.percentile(0.99)

    @property
    def max(self) -> float:
        return self.values[-1] if self.values else float("inf")

    def __str__(self) -> str:
        return f"{len(self.values)} records, p50 {self.p50:.1f} ms, p99 {self.p99:.1f} ms, max {self.max:.0f} ms"


class Victim(_Client):
    """The client that produces one record every 5 ms, from when this returns until it is stopped."""

    def __init__(self, port: int) -> None:
        super().__init__("victim", str(port))
        self._taken = 0
        self._reported = 0.0
        self._answered: list[tuple[float, float]] = []
        self._waiting: list[float] = []
        self._broken: list[tuple[float, str]] = []
        try:
            self._await("ready", READY_S)
        except ClientFailed:
            self.kill()
            raise

    def _take_reports(self) -> None:
        fresh, self._taken = self._lines[self._taken :], len(self._lines)
        for line in fresh:
            if line.startswith("{"):
                report = json.loads(line)
                self._reported = report["at"]
                self._answered += map(tuple, report.get("answered", ()))
                self._waiting = report.get("waiting", [])
                if "broken" in report:
                    self._broken.append((report["at"], report["broken"]))

    def await_report_after(self, moment: float, seconds: float = LANDED_S) -> None:
        """Until the victim has reported on everything up to a moment of the monotonic clock."""
        deadline = time.monotonic() + seconds
        with self._changed:
            self._take_reports()
            while self._reported < moment:
                left = deadline - time.monotonic()
                if self._ended or left <= 0:
                    raise ClientFailed(f"the victim ended, or was silent for {seconds:.0f} s")
                self._changed.wait(left)
                self._take_reports()

    def between(self, begin: float, end: float) -> Latencies:
        """Of the records that were due between two moments of the monotonic clock, as far as reported."""
        with self._changed:
            self._take_reports()
            first = bisect_left(self._answered, (begin, 0.0))
            last = bisect_left(self._answered, (end, 0.0))
            times = [seconds for _, seconds in self._answered[first:last]]
            times += [self._reported - due for due in self._waiting if begin <= due < end]
            broken = [reason for at, reason in self._broken if begin <= at < end]
        return Latencies(sorted(seconds * 1000 for seconds in times), broken)


def memory_of(pid: int, field_name: str = "VmRSS") -> int:
    """Bytes, as the kernel counts them: VmRSS now, VmHWM at the most so far."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field_name + ":"):
            return int(line.split()[1]) * 1024
    raise ProcessLookupError(f"process {pid} has ended")


class MemoryWatch:
    """The resident memory of a process: at the beginning, and the most from then on, which the kernel keeps."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        with suppress(OSError):
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak counts from now
        self.before = memory_of(pid)

    @property
    def peak(self) -> int:
        return memory_of(self._pid, "VmHWM")

    @property
    def now(self) -> int:
        return memory_of(self._pid)

    @property
    def gained(self) -> int:
        return self.peak - self.before


@contextmanager
def memory_cgroup(limit: int) -> Iterator[Path]:
    """A control group with so much memory, for `cgroup.procs` to be written to; OSError where there can be none."""
    v1 = Path("/sys/fs/cgroup/memory")
    name = f"braidlog-test-{os.getpid()}-{time.monotonic_ns()}"
    if (v1 / "memory.limit_in_bytes").exists():
        group, setting = v1 / name, "memory.limit_in_bytes"
    else:
        group, setting = Path("/sys/fs/cgroup") / name, "memory.max"
    group.mkdir()
    try:
        (group / setting).write_text(str(limit))
        yield group
    finally:
        deadline = time.monotonic() + 10
        while True:
            try:
                group.rmdir()
                break
            except OSError:
                # Busy for a moment after its last process has ended.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
