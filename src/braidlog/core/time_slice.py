"""Long work within a coroutine, a slice at a time: the loop serves others in between.

Nothing that a coroutine read before it yields is sure to hold afterwards: whoever slices work says why that is safe.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from typing import Any, Final

SLICE_S: Final = 0.001

SlicedWork = Generator[None, None, Any]


class TimeSlice:
    """For a coroutine with much to do: lets others run when it has worked for a slice's time."""

    def __init__(self) -> None:
        # A simulated loop brings its own clock. `loop.time` would not do: uvloop's stands still within a callback.
        self._now: Callable[[], float] = getattr(asyncio.get_running_loop(), "monotonic", time.monotonic)
        self._until = self._now() + SLICE_S

    def is_over(self) -> bool:
        return self._now() >= self._until

    async def pause(self) -> None:
        """Let others run; a new slice begins after that."""
        await asyncio.sleep(0)
        self._until = self._now() + SLICE_S

    async def yield_if_over(self) -> None:
        if self.is_over():
            await self.pause()


async def run_in_slices(work: SlicedWork) -> Any:
    """Do the work of a generator, which yields between items and returns its result."""
    time_slice = TimeSlice()
    while True:
        try:
            next(work)
        except StopIteration as end:
            return end.value
        await time_slice.yield_if_over()
