"""Seeds that are run on every core and over several runs: each is run once, and what failed is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from braidlog.testing.simulated.simulation import Simulation
from support.simulation.invariants import InvariantBroken
from support.simulation.many_lives import Block, Progress, live, run
from support.simulation.seeds import SeededLives

MODULE = "simulation.test_many_lives"
BAD = 5
DEADLY = 1000


class OneStep:
    def __init__(self, seed: int) -> None:
        self._seed = seed

    async def run(self) -> None:
        if self._seed == DEADLY:
            os._exit(3)
        if self._seed == BAD:
            raise InvariantBroken("this seed is bad")


@contextmanager
def begin(seed: int, steps: int) -> Iterator[tuple[Simulation, OneStep]]:
    with Simulation(seed) as simulation:
        yield simulation, OneStep(seed)


LIVES = SeededLives(begin, __file__, quick=0)


def test_a_run_goes_on_where_the_last_one_ended(tmp_path: Path) -> None:
    notes = tmp_path / "notes" / "lives.jsonl"
    run(MODULE, Progress(notes), 4, minutes=5, block=2)
    first = Progress(notes)
    assert sorted((block.first, block.count) for block in first.blocks) == [(0, 2), (2, 2)]
    assert not first.failed
    run(MODULE, first, 7, minutes=5, block=2)
    second = Progress(notes)
    assert sorted((block.first, block.count) for block in second.blocks) == [(0, 2), (2, 2), (4, 2), (6, 1)]
    assert list(second.failed) == [str(BAD)]
    assert "this seed is bad" in second.failed[str(BAD)]
    assert "7 seeds run, 7 of them with the present code, 1 failed (5)" in str(second)


def test_without_time_nothing_is_run(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "lives.jsonl")
    run(MODULE, progress, 4, minutes=0)
    assert progress.seeds == 0


def test_a_process_that_dies_in_a_life_is_not_taken_for_a_block_that_was_run() -> None:
    with pytest.raises(RuntimeError, match=r"range\(999, 1001\) ended with 3"):
        live(MODULE, range(DEADLY - 1, DEADLY + 1), "code")


def test_a_seed_that_failed_is_run_again_with_other_code(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "lives.jsonl")
    progress.add(Block(0, 4, "other code", False, 1.0, {"1": "bad", "3": "bad"}))
    progress.add(Block(3, 1, "other code", False, 1.0, {}))
    assert list(progress.failed) == ["1"]
    run(MODULE, progress, 4, minutes=5, cores=1)
    assert [(block.first, block.count) for block in progress.blocks[2:]] == [(1, 1)]
    assert not progress.failed
    # With the same code it would fail again.
    run(MODULE, progress, 6, minutes=5, cores=1)
    assert list(progress.failed) == [str(BAD)]
    assert list(progress.missing(6)) == []


def test_what_was_not_noted_whole_is_run_again(tmp_path: Path) -> None:
    notes = tmp_path / "lives.jsonl"
    progress = Progress(notes)
    progress.add(Block(0, 20, "code", False, 1.0, {}))
    progress.add(Block(30, 10, "code", False, 1.0, {}))
    with notes.open("a") as file:
        file.write('{"first": 40, "cou')
    again = Progress(notes)
    assert [(seeds.start, len(seeds)) for seeds in again.missing(70)] == [(20, 10), (40, 20), (60, 10)]
    again.add(Block(20, 10, "code", False, 1.0, {}))
    assert Progress(notes).seeds == 40
