"""For what a broker promises soon, not at once."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 90.0
PAUSE_S = 0.02


def eventually(condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Ask until the answer is yes; an answer that stays no is a failure."""
    deadline = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {deadline_s:.0f} s"
        time.sleep(PAUSE_S)  # the asking is the clock here: no event tells of another process's state
