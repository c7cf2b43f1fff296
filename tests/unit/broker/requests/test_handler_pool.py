from __future__ import annotations

from collections.abc import Callable

import pytest

from braidlog.broker.requests.handler_pool import RequestHandlerPool
from braidlog.net.memory import MemoryPool

LARGE = 5 << 20


class Threads:
    """Runs what was handed over when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Callable[[], None], Callable[[Exception | None], None]]] = []

    def __call__(self, lane: str, work: Callable[[], None], done: Callable[[Exception | None], None]) -> None:
        assert lane == "conversions"
        self.waiting.append((work, done))

    def step(self) -> None:
        work, done = self.waiting.pop(0)
        try:
            work()
        except Exception as problem:
            done(problem)
        else:
            done(None)


class World:
    def __init__(self, side_by_side: int = 1, limit: int = 64 << 20) -> None:
        self.threads = Threads()
        self.memory = MemoryPool(limit)
        self.pool = RequestHandlerPool(self.threads, self.memory, side_by_side)
        self.events: list[str] = []

    def run(self, name: str, size: int) -> None:
        self.pool.run(size, lambda: self.events.append(name), lambda problem: self.events.append(f"{name} done"))


def test_no_more_pieces_than_allowed_run_side_by_side() -> None:
    world = World(side_by_side=2)
    for name in "abc":
        world.run(name, 1)
    assert (len(world.threads.waiting), world.pool.waiting) == (2, 1)
    world.threads.step()
    assert (len(world.threads.waiting), world.pool.waiting) == (2, 0)
    world.threads.step()
    world.threads.step()
    assert world.events == ["a", "a done", "b", "b done", "c", "c done"]


def test_short_and_long_work_take_turns() -> None:
    world = World()
    for name in ("l1", "l2", "l3"):
        world.run(name, LARGE)
    for name in ("s1", "s2"):
        world.run(name, 1)
    while world.threads.waiting:
        world.threads.step()
    assert [event for event in world.events if not event.endswith("done")] == ["l1", "s1", "l2", "s2", "l3"]


def test_work_waits_for_its_memory_and_gives_it_back() -> None:
    world = World(side_by_side=3, limit=20 << 20)
    assert world.pool.most_bytes == 10 << 20
    for name in "abc":
        world.run(name, 50 << 20)
    assert len(world.threads.waiting) == 2
    world.threads.step()
    assert len(world.threads.waiting) == 2
    world.threads.step()
    world.threads.step()
    assert world.events[-1] == "c done"


def test_a_failure_is_told_and_the_next_goes_on() -> None:
    world = World()
    problems: list[Exception | None] = []

    def fail() -> None:
        raise ValueError("no")

    world.pool.run(1, fail, problems.append)
    world.run("b", 1)
    world.threads.step()
    world.threads.step()
    assert isinstance(problems[0], ValueError)
    assert world.events == ["b", "b done"]


def test_a_callback_that_fails_does_not_hold_up_the_others() -> None:
    world = World()

    def done(problem: Exception | None) -> None:
        raise RuntimeError("the peer is gone")

    world.pool.run(1, lambda: None, done)
    world.run("b", 1)
    with pytest.raises(RuntimeError):
        world.threads.step()
    world.threads.step()
    assert world.events == ["b", "b done"]


def test_a_stopped_pool_begins_nothing_more() -> None:
    world = World()
    world.run("a", 1)
    world.run("b", 1)
    world.pool.stop()
    world.threads.step()
    assert (world.threads.waiting, world.pool.waiting) == ([], 1)
