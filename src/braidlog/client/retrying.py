"""How long to go on trying what may work a moment later: after an election, or while a topic comes into being."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

_FIRST_PAUSE_S: Final = 0.02
_LONGEST_PAUSE_S: Final = 0.5


class Retry:
    """`again()` waits a little, each time longer, and says whether there is time left for another try."""

    def __init__(
        self,
        for_s: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._deadline = clock() + for_s
        self._pause_s = _FIRST_PAUSE_S

    def again(self) -> bool:
        left = self._deadline - self._clock()
        if left <= 0:
            return False
        self._sleep(min(self._pause_s, left))
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
        return True
