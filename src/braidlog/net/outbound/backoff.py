"""How long to wait before the next try, after so many that failed."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final

_JITTER: Final = 0.2
_MOST_DOUBLINGS: Final = 30


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
