"""The tests of a workload that lives from a seed: which seeds they run, and what is reported of one that failed.

    LIVES = SeededLives(begin, __file__, quick=16, soak=100, soak_steps=60)

    @LIVES.quick_lives
    def test_what_must_hold_holds(workload: Workload) -> None:
        assert workload.acknowledged          # that the life was worth it

    test_replay = LIVES.replay()
    test_long_lives = LIVES.long_lives()
    test_many_lives = LIVES.many_lives()      # of those of which very many are wanted: see `many_lives`

BRAIDLOG_SIM_SEED=123 .venv/bin/pytest tests/simulation/FILE -k replay   replay one seed
BRAIDLOG_SIM_SEEDS=1000 .venv/bin/pytest tests/simulation                try that many
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import pytest
from _pytest.mark.structures import ParameterSet

from braidlog.testing.simulated.simulation import Simulation
from support.simulation import many_lives
from support.soak import SCALE, scaled

# The lines of the trace that a failure shows.
SHOWN = 80
SHOWN_OF_EACH = 20

_unless_replaying = pytest.mark.skipif("BRAIDLOG_SIM_SEED" in os.environ, reason="one seed is replayed")
_when_replaying = pytest.mark.skipif(
    "BRAIDLOG_SIM_SEED" not in os.environ, reason="BRAIDLOG_SIM_SEED names no seed to replay"
)


class SeededWorkload(Protocol):
    async def run(self) -> None: ...


W = TypeVar("W", bound=SeededWorkload)


@dataclass(frozen=True)
class SeededLives(Generic[W]):
    """`begin` makes a simulation from a seed, and the workload that lives in it for so many steps."""

    begin: Callable[[int, int], AbstractContextManager[tuple[Simulation, W]]]
    file: str
    # How many seeds every run tries, and how many more `make test-all` does.
    quick: int
    further: int = 0
    steps: int = 12
    # How many a soak tries, from which on, and how long those lives are.
    soak: int = 100
    soak_from: int = 1_000_000
    soak_steps: int = 60

    def live(self, seed: int, steps: int) -> W:
        with self.begin(seed, steps) as (simulation, workload):
            _run_workload(simulation, workload, seed, steps, self.file)
        return workload

    def quick_lives(self, check: Callable[[W], None]) -> Callable[[int], None]:
        """`check` looks at a workload whose life went well."""

        @_unless_replaying
        @pytest.mark.parametrize("seed", _seeds(self.quick, self.further))
        def lived(seed: int) -> None:
            check(self.live(seed, self.steps))

        lived.__doc__ = check.__doc__
        return lived

    def replay(self) -> Callable[[], None]:
        @_when_replaying
        def replayed() -> None:
            steps = int(os.environ.get("BRAIDLOG_SIM_STEPS", self.steps))
            self.live(int(os.environ["BRAIDLOG_SIM_SEED"]), steps)

        return replayed

    def long_lives(self) -> Callable[[int], None]:
        @pytest.mark.soak
        @pytest.mark.parametrize("seed", _seeds(scaled(self.soak)))
        def lived(seed: int) -> None:
            self.live(self.soak_from + seed, self.soak_steps)

        return lived

    def many_lives(self, seeds: int = 100_000, minutes: float = 10.0) -> Callable[[], None]:
        """As many of these seeds as there is time for, on every core; the next soak goes on where this one ended."""

        @pytest.mark.soak
        def lived() -> None:
            workload = Path(self.file).stem
            progress = many_lives.Progress(many_lives.NOTES / f"{workload}.jsonl")
            many_lives.run(f"simulation.{workload}", progress, seeds, minutes * SCALE)
            print(f"\n{workload}: {progress}")
            assert not progress.failed, "\n".join(progress.failed.values())

        return lived


def _seeds(many: int, further: int = 0) -> list[ParameterSet]:
    """`many`, and `further` ones that `make test-all` runs; or as many as the environment says."""
    first = int(os.environ.get("BRAIDLOG_SIM_FIRST", "0"))
    if "BRAIDLOG_SIM_SEEDS" in os.environ:
        many, further = int(os.environ["BRAIDLOG_SIM_SEEDS"]), 0
    return [
        pytest.param(seed, marks=[pytest.mark.long] if seed >= first + many else [])
        for seed in range(first, first + many + further)
    ]


def _story_of(simulation: Simulation) -> str:
    """What happened last, without the bytes: all together, then what each broker says of itself."""
    story = simulation.trace.story
    parts = ["\n".join(story[-SHOWN:])]
    for broker in simulation.brokers:
        own = [line for line in story if f" {broker.name}." in line or f" {broker.name} " in line]
        parts.append("\n".join([f"{broker.name}:", *own[-SHOWN_OF_EACH:]]))
    return "\n\n".join(parts)


def _run_workload(simulation: Simulation, workload: SeededWorkload, seed: int, steps: int, file: str) -> None:
    try:
        simulation.run(workload.run())
    except Exception as problem:
        replay = f"BRAIDLOG_SIM_SEED={seed} BRAIDLOG_SIM_STEPS={steps} .venv/bin/pytest {file} -k replay"
        last = _story_of(simulation) if len(simulation.brokers) > 1 else "\n".join(simulation.trace.last[-SHOWN:])
        reported = f"seed {seed} failed: {problem}\nreplay: {replay}\nit ended with:\n{last}"
        raise AssertionError(reported) from problem
