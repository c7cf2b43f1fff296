"""Work on records that is too long for the loop: decompression, validation of what was unpacked, format conversion.

It runs in threads, fewer than there are cores, each within the memory reserved for it. Codecs release the
interpreter's lock while they work; the compiled walks over records give it up now and then (`core/gil`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from braidlog.net.memory import MemoryPool
from braidlog.replication.group_commit import RunInDirectory

# Its executor.
CONVERSIONS: Final = "conversions"
# Bytes to unpack, at most, of work that takes a few milliseconds.
_SHORT: Final = 4 << 20

Done = Callable[[Exception | None], None]


class RequestHandlerPool:
    def __init__(self, run_in_executor: RunInDirectory, memory: MemoryPool, side_by_side: int = 1) -> None:
        self._run_in_executor = run_in_executor
        self._side_by_side = side_by_side
        self._memory = memory
        self._running = 0
        self._stopped = False
        # What is short does not wait behind what is long: they take turns.
        self._short: deque[tuple[int, Callable[[], None], Done]] = deque()
        self._long: deque[tuple[int, Callable[[], None], Done]] = deque()
        self._next_short = True

    @property
    def most_bytes(self) -> int:
        """What one piece of work may unpack: no more than half of the memory, so that two go on side by side."""
        return self._memory.limit // 2

    @property
    def waiting(self) -> int:
        return len(self._short) + len(self._long)

    def run(self, size: int, work: Callable[[], None], done: Done) -> None:
        """Do `work`, which takes about `size` bytes, in a thread; then call `done` on the loop."""
        queue = self._short if size <= _SHORT else self._long
        queue.append((min(size, self.most_bytes), work, done))
        self._start()

    def stop(self) -> None:
        """The broker stops: what waits is not begun any more."""
        self._stopped = True

    def _take(self) -> tuple[int, Callable[[], None], Done]:
        short = self._short and (self._next_short or not self._long)
        self._next_short = not short
        return self._short.popleft() if short else self._long.popleft()

    def _start(self) -> None:
        while self.waiting and self._running < self._side_by_side and not self._stopped:
            size, work, done = self._take()
            self._running += 1

            def begin(size: int = size, work: Callable[[], None] = work, done: Done = done) -> None:
                self._run_in_executor(CONVERSIONS, work, lambda problem: self._finished(size, done, problem))

            if self._memory.reserve(size, begin):
                begin()

    def _finished(self, size: int, done: Done, problem: Exception | None) -> None:
        self._running -= 1
        self._memory.release(size)
        try:
            done(problem)
        finally:
            self._start()
