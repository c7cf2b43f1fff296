from __future__ import annotations

import asyncio
import contextvars
from _thread import allocate_lock
from collections.abc import Callable, Iterator
from random import Random
from typing import TypeVar

import pytest

from braidlog.testing.simulated.loop import Process, ProcessEnded, SimulatedLoop
from braidlog.testing.simulated.threads import SimulatedThreads

T = TypeVar("T")


class World:
    def __init__(self) -> None:
        self.loop = SimulatedLoop(Random(1))  # type: ignore[abstract]
        self.threads = SimulatedThreads(self.loop)
        self.happened: list[str] = []

    async def call(self, function: Callable[[], T], process: Process | None = None) -> T:
        context = contextvars.copy_context() if process is None else process.context.copy()
        return await self.threads.call(context, function)

    def note(self, what: str) -> None:
        self.happened.append(f"{self.loop.time():g} {what}")


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.threads.close()
    world.loop.close()


def test_threads_take_turns_and_time_passes_while_they_wait(world: World) -> None:
    def program(name: str, pause: float) -> str:
        for _ in range(2):
            world.note(f"{name} acts")
            world.threads.sleep(pause)
        return name

    async def work() -> None:
        names = await asyncio.gather(world.call(lambda: program("one", 2.0)), world.call(lambda: program("two", 3.0)))
        assert list(names) == ["one", "two"]

    world.loop.run_until_complete(work())
    assert world.happened == ["0 one acts", "0 two acts", "2 one acts", "3 two acts"]
    assert world.loop.time() == 6.0


def test_a_thread_waits_for_a_lock_that_a_callback_releases(world: World) -> None:
    lock = allocate_lock()
    lock.acquire()

    def program() -> list[bool]:
        return [world.threads.acquire(lock, 1.0), world.threads.acquire(lock, 60.0)]

    async def work() -> None:
        world.loop.call_later(5.0, lock.release)
        assert await world.call(program) == [False, True]

    world.loop.run_until_complete(work())
    assert world.loop.time() == 5.0
    assert lock.locked()


def test_outside_of_the_loop_a_wait_runs_it(world: World) -> None:
    lock = allocate_lock()
    lock.acquire()
    world.loop.call_later(5.0, lock.release)
    assert world.threads.acquire(lock, 60.0)
    assert world.loop.time() == 5.0


def test_a_coroutine_must_not_wait(world: World) -> None:
    async def work() -> None:
        with pytest.raises(RuntimeError, match="must not block"):
            world.threads.sleep(1.0)

    world.loop.run_until_complete(work())


def test_what_a_thread_raises_is_raised_where_it_was_called(world: World) -> None:
    def fail() -> None:
        raise ValueError("no")

    async def work() -> None:
        with pytest.raises(ValueError, match="no"):
            await world.call(fail)

    world.loop.run_until_complete(work())


def test_a_thread_whose_process_ends_leaves_what_it_waits_in(world: World) -> None:
    process = Process("program")

    def program() -> None:
        try:
            world.threads.sleep(1000.0)
        except ProcessEnded:
            world.note("left")
            raise

    async def work() -> None:
        asked = asyncio.ensure_future(world.call(program, process))
        await asyncio.sleep(3.0)
        world.loop.end(process)
        world.threads.process_ended(process)
        await asyncio.wait([asked])
        assert asked.cancelled()

    world.loop.run_until_complete(work())
    assert world.happened == ["3 left"]


def test_closing_ends_threads_that_still_wait(world: World) -> None:
    async def work() -> None:
        world.loop.create_task(world.call(lambda: world.threads.sleep(1000.0)))
        await asyncio.sleep(1.0)

    world.loop.run_until_complete(work())
    world.threads.close()
    assert world.threads.free == []
