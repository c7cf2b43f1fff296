"""For what a broker promises soon, not at once."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_S = 90.0
# An answer may cost the broker and the test more than what is waited for: who waits longer asks less often.
PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.2
GROWTH = 1.2


def eventually(condition: Callable[[], bool], deadline_s: float = DEADLINE_S) -> None:
    """Ask until the answer is yes; an answer that stays no is a failure."""
    deadline = time.monotonic() + deadline_s
    pause_s = PAUSE_S
    while not condition():
        assert time.monotonic() < deadline, f"still not so after {deadline_s:.0f} s"
        time.sleep(pause_s)  # the asking is the clock here: no event tells of another process's state
        pause_s = min(pause_s * GROWTH, LONGEST_PAUSE_S)
