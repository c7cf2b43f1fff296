from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from braidlog.broker.requests.time_slicing import TimeSlicer
from braidlog.core.clock import ManualClock
from braidlog.core.time_slice import SLICE_S
from braidlog.net.channel import Channel, FrameHandler
from braidlog.net.fair_queue import FairQueue
from braidlog.net.memory import MemoryBudget
from braidlog.net.round import Round


class ManualLoop:
    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()


class World:
    def __init__(self) -> None:
        self.loop = ManualLoop()
        self.clock = ManualClock()
        self.time_slicer = TimeSlicer(FairQueue(self.loop), self.clock)
        self.results: list[object] = []
        self.steps: list[str] = []

    def channel(self) -> Channel:
        return Channel(FrameHandler(), Round(self.loop), MemoryBudget(1 << 20), "PLAINTEXT", "192.0.2.1")

    def work(self, name: str, items: int, each_s: float = SLICE_S) -> Generator[None, None, str]:
        for _ in range(items):
            self.steps.append(name)
            self.clock.advance(each_s)
            yield
        return name

    def run(self, work: Generator[None, None, Any], channel: Channel | None = None) -> Channel:
        channel = channel or self.channel()
        self.time_slicer.run(work, channel, self.results.append, self.results.append)
        return channel


def test_short_work_is_done_at_once() -> None:
    world = World()
    channel = world.run(world.work("short", 5, SLICE_S / 100))
    assert world.results == ["short"]
    assert not channel.muted
    assert len(world.time_slicer) == 0


def test_long_work_goes_on_in_turns_while_its_peer_waits() -> None:
    world = World()
    channels = [world.run(world.work(name, 3)) for name in "ab"]
    assert world.steps == ["a", "b"]
    assert all(channel.muted for channel in channels)
    while world.loop.soon:
        world.loop.turn()
    assert world.steps == ["a", "b", "a", "b", "a", "b"]
    assert world.results == ["a", "b"]
    assert len(world.time_slicer) == 0


def test_only_a_few_pieces_of_long_work_are_under_way() -> None:
    world = World()
    for number in range(10):
        world.run(world.work(str(number), 5))
    for _ in range(3):
        world.loop.turn()
    # Every one had its first slice; only the first few go on.
    begun = {name for name in world.steps if world.steps.count(name) > 1}
    assert begun == {"0", "1", "2", "3"}
    while world.loop.soon:
        world.loop.turn()
    assert sorted(map(str, world.results)) == [str(number) for number in range(10)]


def test_what_fails_is_told_and_the_others_go_on() -> None:
    world = World()

    def failing() -> Generator[None, None, None]:
        yield
        world.clock.advance(SLICE_S)
        yield
        raise ValueError("no")

    world.run(failing())
    world.run(world.work("other", 3))
    while world.loop.soon:
        world.loop.turn()
    problem, other = world.results
    assert isinstance(problem, ValueError)
    assert other == "other"


def test_work_for_a_peer_that_is_gone_ends() -> None:
    world = World()
    channel = world.run(world.work("gone", 100))
    channel.closed = True
    world.loop.turn()
    assert world.steps == ["gone"]
    assert world.results == []
    assert len(world.time_slicer) == 0
    assert world.loop.soon == []


def test_an_answer_that_cannot_be_given_closes_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    world = World()

    class Closing(Channel):
        reason: str | None = None

        def close(self, reason: str) -> None:
            self.closed = True
            self.reason = reason

    channel = Closing(FrameHandler(), Round(world.loop), MemoryBudget(1 << 20), "PLAINTEXT", "192.0.2.1")

    def fail(result: object) -> None:
        raise MemoryError

    world.time_slicer.run(world.work("a", 3), channel, fail, fail)
    world.run(world.work("b", 3))
    while world.loop.soon:
        world.loop.turn()
    assert channel.reason == "internal error"
    assert world.results == ["b"]
    assert len(world.time_slicer) == 0
