"""Waits that all have the same time-out, and as a rule end long before it: one timer for all of them.

Where waits bring time-outs of their own, as the requests of clients do, few of these are different: one queue for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

CallLater = Callable[[float, Callable[[], None]], Any]

# Queues beyond this many are dropped when they are empty.
_MOST_QUEUES: Final = 32


class Expiring(Protocol):
    @property
    def done(self) -> bool:
        """Whether the wait is over."""
        ...

    def time_out(self) -> None:
        """It took too long; `done` afterwards."""
        ...


class TimeoutQueue:
    """`timeout_s` is asked for each wait; where it falls, earlier waits still keep theirs and hold up later ones."""

    def __init__(self, call_later: CallLater, monotonic: Callable[[], float], timeout_s: Callable[[], float]) -> None:
        self._call_later = call_later
        self._monotonic = monotonic
        self._timeout_s = timeout_s
        # With the time at which each is over, oldest first.
        self._waiting: deque[tuple[float, Expiring]] = deque()
        self._timer_is_set = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, wait: Expiring) -> None:
        self._drop_done()
        timeout_s = self._timeout_s()
        self._waiting.append((self._monotonic() + timeout_s, wait))
        if not self._timer_is_set:
            self._set_timer(timeout_s)

    def has_waits(self) -> bool:
        self._drop_done()
        return bool(self._waiting)

    def _set_timer(self, delay_s: float) -> None:
        self._timer_is_set = True
        self._call_later(delay_s, self._on_timer)

    def _on_timer(self) -> None:
        self._timer_is_set = False
        now = self._monotonic()
        while self._waiting and (self._waiting[0][1].done or self._waiting[0][0] <= now):
            _, wait = self._waiting.popleft()
            if not wait.done:
                wait.time_out()
        # What a time-out adds may have set it.
        if self._waiting and not self._timer_is_set:
            self._set_timer(self._waiting[0][0] - now)

    def _drop_done(self) -> None:
        while self._waiting and self._waiting[0][1].done:
            self._waiting.popleft()


class TimeoutQueues:
    """Waits with a time-out each."""

    def __init__(self, call_later: CallLater, monotonic: Callable[[], float]) -> None:
        self._call_later = call_later
        self._monotonic = monotonic
        self._queues: dict[int, TimeoutQueue] = {}

    def __len__(self) -> int:
        """Queues."""
        return len(self._queues)

    def add(self, wait: Expiring, timeout_ms: int) -> None:
        queue = self._queues.get(timeout_ms)
        if queue is None:
            if len(self._queues) >= _MOST_QUEUES:
                self._queues = {key: each for key, each in self._queues.items() if each.has_waits()}
            queue = TimeoutQueue(self._call_later, self._monotonic, lambda: timeout_ms / 1000)
            self._queues[timeout_ms] = queue
        queue.add(wait)
