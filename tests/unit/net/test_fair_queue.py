from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from braidlog.net.fair_queue import FairQueue


class ManualLoop:
    def __init__(self) -> None:
        self.soon: list[Callable[[], object]] = []

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def turn(self) -> None:
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()


class Greedy:
    """Wants one turn after another."""

    def __init__(self, turns: FairQueue, wants: int, takes_s: float = 0.0) -> None:
        self.fair_queue = turns
        self.wants = wants
        self.takes_s = takes_s
        self.had = 0

    def take_turn(self) -> None:
        self.had += 1
        until = time.monotonic() + self.takes_s
        while time.monotonic() < until:
            pass
        if self.had < self.wants:
            self.fair_queue.add(self)


def test_everybody_gets_a_turn_before_anybody_gets_another() -> None:
    loop = ManualLoop()
    turns = FairQueue(loop)
    takers = [Greedy(turns, 3) for _ in range(4)]
    for taker in takers:
        turns.add(taker)
    for passes in (1, 2, 3):
        loop.turn()
        assert [taker.had for taker in takers] == [passes] * 4
    loop.turn()
    assert turns.waiting == 0
    assert loop.soon == []


def test_many_waiting_connections_take_a_bounded_part_of_a_pass() -> None:
    loop = ManualLoop()
    turns = FairQueue(loop)
    takers = [Greedy(turns, 1, takes_s=0.0015) for _ in range(20)]
    for taker in takers:
        turns.add(taker)
    loop.turn()
    assert sum(taker.had for taker in takers) <= 2
    while loop.soon:
        loop.turn()
    assert [taker.had for taker in takers] == [1] * 20


def test_one_that_fails_does_not_stop_the_others() -> None:
    class Failing:
        def take_turn(self) -> None:
            raise MemoryError

    loop = ManualLoop()
    turns = FairQueue(loop)
    other = Greedy(turns, 1)
    turns.add(Failing())
    turns.add(other)
    with contextlib.suppress(MemoryError):
        loop.turn()
    loop.turn()
    assert other.had == 1
