"""How long to go on trying what may work a moment later: after an election, or while a topic comes into being."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from random import Random
from typing import Final

FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 0.5
_JITTER: Final = 0.2
_MOST_DOUBLINGS: Final = 30


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


class ExponentialBackoff:
    """How long to wait before the next try: doubling from `first_s` up to `longest_s`, each spread by a fifth.

    Kafka spreads by as much, so that not all clients come back to a restarted broker at once.
    """

    def __init__(self, first_s: float, longest_s: float, random: Random) -> None:
        self._first_s = first_s
        self._longest_s = longest_s
        self._random = random
        self._tries = 0

    def pause_s(self, tries: int) -> float:
        """After so many tries that failed before the last."""
        pause: float = min(self._first_s * 2.0 ** min(tries, _MOST_DOUBLINGS), self._longest_s)
        return pause * self._random.uniform(1 - _JITTER, 1 + _JITTER)

    def next_s(self) -> float:
        self._tries += 1
        return self.pause_s(self._tries - 1)

    def reset(self) -> None:
        self._tries = 0

    async def wait(self) -> None:
        await asyncio.sleep(self.next_s())
