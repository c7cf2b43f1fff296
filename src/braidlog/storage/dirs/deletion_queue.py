"""Things on disk that are gone for readers but not yet removed: they wait for `file.delete.delay.ms`."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator

from braidlog.core.clock import Clock
from braidlog.storage.jobs import Finish, Work

_log = logging.getLogger(__name__)


class DeletionQueue:
    """Removals in the order they fall due; owned by the thread that owns the logs."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[tuple[float, int, str, str, Callable[[], None]]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, directory: str, what: str, delay_ms: int, remove: Callable[[], None]) -> None:
        """`remove` is called in the executor of `directory`, `delay_ms` from now at the earliest."""
        self._sequence += 1
        due = self._clock.monotonic() + delay_ms / 1000
        heapq.heappush(self._waiting, (due, self._sequence, directory, what, remove))

    def due(self) -> Iterator[Work]:
        now = self._clock.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, directory, what, remove = heapq.heappop(self._waiting)
            yield Work(directory, f"delete {what}", _Removal(what, remove))

    def forget_directory(self, directory: str) -> None:
        """A failed directory takes its removals with it; the next start finds the files by their names."""
        self._waiting = [entry for entry in self._waiting if entry[2] != directory]
        heapq.heapify(self._waiting)


class _Removal:
    def __init__(self, what: str, remove: Callable[[], None]) -> None:
        self._what = what
        self._remove = remove

    def __call__(self) -> Finish | None:
        try:
            self._remove()
        except OSError as problem:
            # Not worth a directory: the space is reclaimed at the next start.
            _log.warning("Could not delete %s: %s", self._what, problem)
        return None
