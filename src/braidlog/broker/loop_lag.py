"""How long callbacks keep the event loop from everyone else: by how late a timer fires, and the worst of late."""

from __future__ import annotations

import asyncio
import time
from typing import Final

# A stall is seen if it lasts longer than this, short of at most this much.
_EVERY_S: Final = 0.05
# `longest` covers between one and two of these.
_PERIOD_S: Final = 60.0


class LoopLag:
    def __init__(self) -> None:
        # Of the last timer.
        self.last = 0.0
        self._now = 0.0
        self._before = 0.0
        self._until = 0.0

    @property
    def longest(self) -> float:
        """In the last minute at least, so that no scrape misses it."""
        return max(self._now, self._before)

    def note(self, now: float, lag: float) -> None:
        if now >= self._until:
            # What was noted longer ago than a whole period is forgotten.
            self._before = self._now if now < self._until + _PERIOD_S else 0.0
            self._now = 0.0
            self._until = now + _PERIOD_S
        self.last = max(0.0, lag)
        self._now = max(self._now, self.last)

    async def watch(self) -> None:
        while True:
            due = time.monotonic() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            now = time.monotonic()
            self.note(now, now - due)
