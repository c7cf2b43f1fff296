from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine
from random import Random
from typing import Any

import pytest

from braidlog.testing.simulated.loop import (
    EPOCH_MS,
    Process,
    SimulatedClock,
    SimulatedExecutor,
    SimulatedLoop,
    SimulationDeadlock,
    current_process,
)


@pytest.fixture
def loop() -> SimulatedLoop:
    return SimulatedLoop(Random(7))  # type: ignore[abstract]


def test_time_jumps_to_the_next_timer(loop: SimulatedLoop) -> None:
    seen: list[tuple[float, int]] = []
    clock = SimulatedClock(loop)

    async def work() -> None:
        seen.append((loop.time(), clock.wall_ms()))
        await asyncio.sleep(3600)
        seen.append((clock.monotonic(), clock.wall_ms()))

    loop.run_until_complete(work())
    assert seen == [(0.0, EPOCH_MS), (3600.0, EPOCH_MS + 3_600_000)]


def test_callbacks_run_in_order_and_timers_by_time_then_age(loop: SimulatedLoop) -> None:
    order: list[str] = []

    async def work() -> None:
        loop.call_later(2, order.append, "second")
        loop.call_later(1, order.append, "first")
        loop.call_later(2, order.append, "third")
        loop.call_soon(order.append, "at once")
        loop.call_later(1, order.append, "never").cancel()
        await asyncio.sleep(3)

    loop.run_until_complete(work())
    assert order == ["at once", "first", "second", "third"]


def test_timeouts_fire(loop: SimulatedLoop) -> None:
    async def work() -> None:
        async with asyncio.timeout(5):
            await loop.create_future()

    with pytest.raises(TimeoutError):
        loop.run_until_complete(work())
    assert loop.time() == 5.0


def test_waiting_for_nothing_is_a_deadlock(loop: SimulatedLoop) -> None:
    async def work() -> None:
        await loop.create_future()

    with pytest.raises(SimulationDeadlock):
        loop.run_until_complete(work())
    loop.close()


def test_jobs_take_time_and_keep_to_their_threads(loop: SimulatedLoop) -> None:
    order: list[int] = []
    one_thread = SimulatedExecutor(1)

    async def work() -> list[int]:
        jobs = [loop.run_in_executor(one_thread, order.append, number) for number in range(10)]
        await asyncio.gather(*jobs)
        assert order == list(range(10))
        order.clear()
        two = SimulatedExecutor(2)
        await asyncio.gather(*[loop.run_in_executor(two, order.append, number) for number in range(50)])
        return sorted(order)

    assert loop.run_until_complete(work()) == list(range(50))
    assert order != list(range(50)), "two threads overtake each other under this seed"
    assert loop.time() > 0


def test_a_job_that_fails_fails_its_future(loop: SimulatedLoop) -> None:
    def fail() -> None:
        raise OSError("broken")

    async def work() -> None:
        await loop.run_in_executor(SimulatedExecutor(), fail)

    with pytest.raises(OSError, match="broken"):
        loop.run_until_complete(work())


def test_nothing_of_an_ended_process_runs(loop: SimulatedLoop) -> None:
    done: list[str] = []
    process = Process("doomed")

    async def inside() -> None:
        assert current_process() is process
        loop.call_later(2, done.append, "timer")
        done.append("began")
        loop.run_in_executor(SimulatedExecutor(), done.append, "job")
        try:
            await asyncio.sleep(1)
            done.append("woke")
        finally:
            done.append("closed")

    async def work() -> None:
        loop.create_task(inside(), context=process.context.copy())
        await asyncio.sleep(0)
        loop.end(process)
        await asyncio.sleep(10)

    loop.run_until_complete(work())
    assert done == ["began", "closed"]


def test_failures_that_nobody_waits_for_are_kept(loop: SimulatedLoop) -> None:
    def fail() -> None:
        raise ValueError("lost")

    async def work() -> None:
        loop.call_soon(fail)
        await asyncio.sleep(1)

    loop.run_until_complete(work())
    (problem,) = loop.problems
    assert str(problem["exception"]) == "lost"


def test_a_process_may_end_before_a_task_of_it_began_to_await_another_coroutine(loop: SimulatedLoop) -> None:
    """Without a warning, and so a failure, that the other one was never awaited."""
    process = Process("short")

    async def answer() -> None:
        raise AssertionError("nothing of an ended process runs")

    async def answer_later(work: Coroutine[Any, Any, None]) -> None:
        await work

    async def work() -> None:
        loop.create_task(answer_later(answer()), context=process.context.copy())
        loop.end(process)
        await asyncio.sleep(1)

    loop.run_until_complete(work())
    gc.collect()


def test_a_cancelled_callback_says_so(loop: SimulatedLoop) -> None:
    timer = loop.call_later(2, print)
    assert (timer.when(), timer.cancelled()) == (2.0, False)
    timer.cancel()
    assert timer.cancelled()
    assert "cancelled" in repr(timer)
