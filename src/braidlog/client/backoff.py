"""How long to go on trying what may work a moment later: after an election, or while a topic comes into being."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.5


class Retry:
    """`again()` waits a little, each time longer, and says whether there is time left for another try."""

    def __init__(
        self,
        for_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        first_pause_s: float = FIRST_PAUSE_S,
        longest_pause_s: float = LONGEST_PAUSE_S,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._deadline = clock() + for_s
        self._pause_s = first_pause_s
        self._longest_pause_s = longest_pause_s

    async def again(self) -> bool:
        left = self._deadline - self._clock()
        if left <= 0:
            return False
        await self._sleep(min(self._pause_s, left))
        self._pause_s = min(self._pause_s * 2, self._longest_pause_s)
        return True
