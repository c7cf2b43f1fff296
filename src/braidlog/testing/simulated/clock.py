"""The clock of a simulation: it shows the loop's virtual time, and a date that everybody can compute with."""

from __future__ import annotations

import asyncio
from typing import Final

EPOCH_MS: Final = 1_700_000_000_000


class SimulatedClock:
    def __init__(self, loop: asyncio.AbstractEventLoop, epoch_ms: int = EPOCH_MS) -> None:
        self._loop = loop
        self._epoch_ms = epoch_ms

    def wall_ms(self) -> int:
        return self._epoch_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()
