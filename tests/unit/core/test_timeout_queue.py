from __future__ import annotations

from collections.abc import Callable

from braidlog.core.clock import ManualClock
from braidlog.core.timeout_queue import TimeoutQueue, TimeoutQueues


class Wait:
    def __init__(self) -> None:
        self.done = False
        self.timed_out = 0

    def time_out(self) -> None:
        self.done = True
        self.timed_out += 1


class Queue:
    """A queue with a time-out of 10 s, and a clock that a test moves."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.waits = TimeoutQueue(self._call_later, self.clock.monotonic, lambda: 10.0)

    def _call_later(self, delay_s: float, work: Callable[[], None]) -> None:
        self.timers.append((self.clock.monotonic() + delay_s, work))

    def add(self) -> Wait:
        wait = Wait()
        self.waits.add(wait)
        return wait

    def pass_time(self, seconds: float) -> None:
        until = self.clock.monotonic() + seconds
        while self.timers and self.timers[0][0] <= until:
            at, work = self.timers.pop(0)
            self.clock.advance(at - self.clock.monotonic())
            work()
        self.clock.advance(until - self.clock.monotonic())


def test_a_wait_ends_at_its_time_and_once() -> None:
    queue = Queue()
    first = queue.add()
    queue.pass_time(4)
    second = queue.add()
    queue.pass_time(5.5)
    assert (first.timed_out, second.timed_out) == (0, 0)
    queue.pass_time(1)
    assert (first.timed_out, second.timed_out) == (1, 0)
    queue.pass_time(60)
    assert (first.timed_out, second.timed_out) == (1, 1)
    assert queue.timers == []


def test_what_is_done_in_time_hears_nothing() -> None:
    queue = Queue()
    wait = queue.add()
    wait.done = True
    queue.pass_time(60)
    assert wait.timed_out == 0


def test_many_waits_share_one_timer_and_are_forgotten_when_done() -> None:
    queue = Queue()
    for _ in range(1000):
        queue.add().done = True
    assert len(queue.waits) == 1
    assert len(queue.timers) == 1


def test_a_wait_that_begins_while_another_times_out() -> None:
    queue = Queue()
    added: list[Wait] = []

    class Again(Wait):
        def time_out(self) -> None:
            super().time_out()
            added.append(queue.add())

    queue.waits.add(Again())
    queue.pass_time(10)
    assert [wait.timed_out for wait in added] == [0]
    queue.pass_time(10)
    assert [wait.timed_out for wait in added] == [1]


def test_waits_with_time_outs_of_their_own() -> None:
    queue = Queue()
    waits = TimeoutQueues(queue._call_later, queue.clock.monotonic)
    long, short = Wait(), Wait()
    waits.add(long, 3000)
    waits.add(short, 1000)
    queue.timers.sort(key=lambda timer: timer[0])
    queue.pass_time(2)
    assert (long.timed_out, short.timed_out) == (0, 1)
    queue.pass_time(2)
    assert long.timed_out == 1


def test_very_many_different_time_outs_leave_nothing_behind() -> None:
    queue = Queue()
    waits = TimeoutQueues(queue._call_later, queue.clock.monotonic)
    pending = Wait()
    waits.add(pending, 5)
    for timeout_ms in range(1000, 2000):
        over = Wait()
        waits.add(over, timeout_ms)
        over.done = True
    assert len(waits) <= 40
    queue.pass_time(1)
    assert pending.timed_out == 1
