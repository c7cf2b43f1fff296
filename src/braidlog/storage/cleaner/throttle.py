"""Keeps what the cleaner reads and writes below `log.cleaner.io.max.bytes.per.second`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from braidlog.core.clock import Clock

_LONGEST_SLEEP: Final = 1.0


class Throttle:
    """`maybe_throttle` returns when the average rate since the start is within the limit again."""

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
            self._sleep(min(ahead, _LONGEST_SLEEP))
