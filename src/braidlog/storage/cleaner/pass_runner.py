"""Where a compaction pass runs: in this thread, or in a worker process that keeps the broker's interpreter free."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final, Protocol

from braidlog.core.clock import Clock, SystemClock
from braidlog.core.errors import BraidlogError, CorruptLogError
from braidlog.storage.cleaner.cleaner import clean
from braidlog.storage.cleaner.cleaning_request import CleaningRequest, CleaningResult, LogCleaningAborted
from braidlog.storage.files import Files

# Below this it takes longer to start a process than to do the work here.
_SMALL_PASS_BYTES: Final = 256 * 1024
_LONGEST_SLEEP_S: Final = 1.0


class CleanerProcessDied(BraidlogError):
    """The worker ended without an answer."""


class PassRunner(Protocol):
    def run(self, request: CleaningRequest, is_stopped: Callable[[], bool]) -> CleaningResult:
        """Blocks; raises LogCleaningAborted, CorruptLogError, CleanerProcessDied or OSError."""
        ...

    def stop(self) -> None:
        """End the pass under way soon; any thread."""
        ...

    def on_idle(self) -> None:
        """No pass is due for a while."""
        ...

    def close(self) -> None: ...


class Throttle:
    """Keeps what a pass reads and writes below `log.cleaner.io.max.bytes.per.second`.

    `maybe_throttle` returns when the average rate since the start is within the limit again.
    """

    def __init__(self, bytes_per_second: float, clock: Clock, sleep: Callable[[float], None] | None = None) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._sleep = sleep or time.sleep
        self._start = clock.monotonic()
        self._spent = 0

    def maybe_throttle(self, count: int) -> None:
        self._spent += count
        if self._rate == float("inf"):
            return
        ahead = self._spent / self._rate - (self._clock.monotonic() - self._start)
        if ahead > 0:
            self._sleep(min(ahead, _LONGEST_SLEEP_S))


class InlinePassRunner:
    """In the calling thread: for simulations, tests and small logs."""

    def __init__(self, files: Files, clock: Clock | None = None) -> None:
        self._files = files
        self._clock = clock or SystemClock()

    def run(self, request: CleaningRequest, is_stopped: Callable[[], bool]) -> CleaningResult:
        throttle = Throttle(request.memory.max_io_bytes_per_second, self._clock)
        return clean(request, self._files, throttle=throttle.maybe_throttle, is_stopped=is_stopped)

    def stop(self) -> None:
        return None

    def on_idle(self) -> None:
        return None

    def close(self) -> None:
        return None


class ProcessPassRunner:
    """In `python -m braidlog.storage.cleaner.worker`, started when first needed and let go when nothing is due.

    Started by exec, never by fork: a fork of a process with threads and an event loop inherits locks that stay locked.
    """

    def __init__(self, files: Files, small_pass_bytes: int = _SMALL_PASS_BYTES) -> None:
        self._inline = InlinePassRunner(files)
        self._small_pass_bytes = small_pass_bytes
        self._process: subprocess.Popen[str] | None = None

    def run(self, request: CleaningRequest, is_stopped: Callable[[], bool]) -> CleaningResult:
        if sum(size for _, size in request.segments) <= self._small_pass_bytes:
            return self._inline.run(request, is_stopped)
        process = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(request.to_json() + "\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except (OSError, ValueError):
            answer = ""
        if is_stopped():
            self.close()
            raise LogCleaningAborted(f"cleaning of {request.directory} was stopped")
        if not answer:
            self.close()
            raise CleanerProcessDied(f"the cleaner process ended while it compacted {request.directory}")
        return _parse(answer)

    def stop(self) -> None:
        process = self._process
        if process is not None:
            process.kill()

    def on_idle(self) -> None:
        self.close()

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                # What was still buffered for a dead process is not missed.
                with contextlib.suppress(OSError):
                    pipe.close()
        process.wait()

    def _started(self) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "braidlog.storage.cleaner.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
        return self._process


def _parse(answer: str) -> CleaningResult:
    fields = json.loads(answer)
    kind = fields.get("error")
    if kind is None:
        return CleaningResult.from_json(answer)
    if kind == "corrupt":
        raise CorruptLogError(fields["message"])
    if kind == "os":
        raise OSError(fields["errno"], fields["message"])
    raise CleanerProcessDied(fields["message"])
