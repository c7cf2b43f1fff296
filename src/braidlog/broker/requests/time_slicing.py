"""Long requests on the loop, a slice at a time: one about thousands of things holds up no other.

Such work is a generator: it yields between items, and returns its result. The first slice runs at once, so that what
is short is answered as if there were no slices. What remains goes on a slice at a time, in turn with other long work
and with connections that never pause (`net/fair_queue`); few at a time, because each holds what it has built so far.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from braidlog.core.clock import Clock
from braidlog.core.time_slice import SLICE_S, SlicedWork
from braidlog.net.channel import Channel
from braidlog.net.fair_queue import FairQueue

log = logging.getLogger("braidlog.slices")

_SIDE_BY_SIDE: Final = 4


class _SlicedJob:
    """`done` is called with what the work returned, `failed` with what it raised; neither once the peer is gone."""

    __slots__ = ("channel", "done", "failed", "time_slicer", "work")

    def __init__(
        self,
        time_slicer: TimeSlicer,
        work: SlicedWork,
        channel: Channel,
        done: Callable[[Any], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.time_slicer = time_slicer
        self.work = work
        self.channel = channel
        self.done = done
        self.failed = failed

    def take_turn(self) -> None:
        self.time_slicer.advance(self)


class TimeSlicer:
    def __init__(self, fair_queue: FairQueue, clock: Clock) -> None:
        self._fair_queue = fair_queue
        self._clock = clock
        self._running = 0
        self._waiting: deque[_SlicedJob] = deque()

    def __len__(self) -> int:
        return self._running + len(self._waiting)

    def run(
        self, work: SlicedWork, channel: Channel, done: Callable[[Any], None], failed: Callable[[Exception], None]
    ) -> None:
        """Begin the work; where it does not end with its first slice, the peer's further requests wait for it."""
        job = _SlicedJob(self, work, channel, done, failed)
        if self._slice(job):
            return
        channel.mute()
        if self._running < _SIDE_BY_SIDE:
            self._running += 1
            self._fair_queue.add(job)
        else:
            self._waiting.append(job)

    def advance(self, job: _SlicedJob) -> None:
        try:
            over = self._slice(job)
        except Exception as problem:
            # What it had to say could not be said: the peer that waits for it must not wait for ever.
            message = "closed the connection from %s: a bug in braidlog, please report it"
            log.error(message, job.channel.peer_host, exc_info=problem)
            job.channel.close("internal error")
            over = True
        if not over:
            self._fair_queue.add(job)
        elif self._waiting:
            self._fair_queue.add(self._waiting.popleft())
        else:
            self._running -= 1

    def _slice(self, job: _SlicedJob) -> bool:
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
