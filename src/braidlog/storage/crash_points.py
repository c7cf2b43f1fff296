"""Named places where a fault test lets the process die: `BRAIDLOG_CRASH_AT=after-write:3` dies at the third write.

Off, a point costs the look at one module constant. Points: after-write (data written, not acknowledged), mid-roll (old
segment closed, new one not yet there), mid-swap (compacted files half renamed), mid-checkpoint (temporary file
written, not yet renamed).
"""

from __future__ import annotations

import os
import signal
from typing import Final

AFTER_WRITE: Final = "after-write"
MID_ROLL: Final = "mid-roll"
MID_SWAP: Final = "mid-swap"
MID_CHECKPOINT: Final = "mid-checkpoint"

_VARIABLE: Final = "BRAIDLOG_CRASH_AT"


class CrashPlan:
    """Where to die, and at which passage."""

    __slots__ = ("passages", "point")

    def __init__(self, text: str) -> None:
        name, _, count = text.partition(":")
        self.point = name
        self.passages = int(count) if count else 1

    def passes(self, point: str) -> bool:
        """Whether the process lives on after this passage."""
        if point != self.point:
            return True
        self.passages -= 1
        return self.passages != 0


_plan: CrashPlan | None = CrashPlan(os.environ[_VARIABLE]) if os.environ.get(_VARIABLE) else None


def crash_point(point: str) -> None:
    """Dies here as by `kill -9`, if that was asked for."""
    if _plan is not None and not _plan.passes(point):
        os.kill(os.getpid(), signal.SIGKILL)
