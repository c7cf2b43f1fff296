"""FairQueue: connections with more work than a turn allows go on one after another in a bounded share of the loop.

A connection that sends now and then is served as its requests come. One that sends without pause (pipelined, or many
requests in one packet) is served for `TURN_S`, is not read from while the rest of what it sent waits here, and shares
the loop's time with the others of its kind. So however much one peer asks, another waits for a few turns at most.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Final, Protocol

from braidlog.net.round import Scheduler

TURN_S: Final = 0.001
# What waiting connections may take of one pass of the loop, together.
_SHARE_S: Final = 0.002


class TurnTaker(Protocol):
    def take_turn(self) -> None: ...


class FairQueue:
    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: deque[TurnTaker] = deque()
        self._scheduled = False

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def add(self, taker: TurnTaker) -> None:
        self._waiting.append(taker)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        until = time.monotonic() + _SHARE_S
        try:
            # Each at most once: who comes back here waits for the next pass.
            for _ in range(len(self._waiting)):
                self._waiting.popleft().take_turn()
                if time.monotonic() >= until:
                    break
        finally:
            if self._waiting:
                self._schedule()
