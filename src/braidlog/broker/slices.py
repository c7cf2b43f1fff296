"""Long work on the loop, a slice at a time: whoever describes thousands of things holds up nobody else.

Such work is a generator: it yields between items, and returns its result. The first slice runs at once, so that what
is short is answered as if there were no slices. What remains goes on one slice a pass of the loop, in turn with other
long work; few at a time, because each holds what it has built so far.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final

from braidlog.core.clock import Clock
from braidlog.net.channel import Channel
from braidlog.net.round import Scheduler

SLICE_S: Final = 0.001
_SIDE_BY_SIDE: Final = 4

Work = Generator[None, None, Any]


class _Job:
    """`done` is called with what the work returned, `failed` with what it raised; neither once the peer is gone."""

    __slots__ = ("channel", "done", "failed", "work")

    def __init__(
        self, work: Work, channel: Channel, done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        self.work = work
        self.channel = channel
        self.done = done
        self.failed = failed


class Slices:
    def __init__(self, scheduler: Scheduler, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._running: deque[_Job] = deque()
        self._waiting: deque[_Job] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._running) + len(self._waiting)

    def run(
        self, work: Work, channel: Channel, done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        """Begin the work; where it does not end with its first slice, the peer's further requests wait for it."""
        job = _Job(work, channel, done, failed)
        if self._advance(job):
            return
        channel.mute()
        if len(self._running) < _SIDE_BY_SIDE:
            self._running.append(job)
        else:
            self._waiting.append(job)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        job = self._running.popleft()
        try:
            if not self._advance(job):
                self._running.append(job)
        finally:
            if self._waiting and len(self._running) < _SIDE_BY_SIDE:
                self._running.append(self._waiting.popleft())
            if self._running:
                self._schedule()

    def _advance(self, job: _Job) -> bool:
        """Run one slice; whether the job is over."""
        if job.channel.closed:
            job.work.close()
            return True
        until = self._clock.monotonic() + SLICE_S
        try:
            while True:
                next(job.work)
                if self._clock.monotonic() >= until:
                    return False
        except StopIteration as end:
            result = end.value
        except Exception as problem:
            job.failed(problem)
            return True
        job.done(result)
        return True
