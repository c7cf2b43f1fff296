"""One broker lives through a random life, from a seed: see `support/simulation/workload` for what happens to it, and
`support/simulation/invariants` for what must hold.

    BRAIDLOG_SIM_SEED=123 .venv/bin/pytest tests/simulation        replay one seed
    BRAIDLOG_SIM_SEEDS=1000 .venv/bin/pytest tests/simulation      try that many (make soak: more, and longer lives)
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from braidlog.testing.simulated.simulation import Simulation
from support.simulation.seeds import replayed_seed, run_workload, seeds, unless_replaying, when_replaying
from support.simulation.settings import settings_for
from support.simulation.workload import Workload
from support.soak import scaled

QUICK_SEEDS = 60
QUICK_STEPS = 12
SOAK_SEEDS = scaled(100)
SOAK_STEPS = 60


class Life(NamedTuple):
    digest: str
    events: int
    lives: int
    acknowledged: int


def live(seed: int, steps: int = QUICK_STEPS) -> Life:
    with Simulation(seed, settings_for(seed)) as simulation:
        workload = Workload(simulation, steps)
        run_workload(simulation, workload, seed, steps, __file__)
        trace = simulation.trace
        return Life(trace.digest(), trace.count, simulation.broker.lives, workload.history.acknowledged_count)


@unless_replaying
@pytest.mark.parametrize("seed", seeds(QUICK_SEEDS))
def test_what_must_hold_holds(seed: int) -> None:
    life = live(seed)
    assert life.acknowledged > 0


@when_replaying
def test_replay() -> None:
    live(*replayed_seed(QUICK_STEPS))


@pytest.mark.parametrize("seed", [3, 14])
def test_a_seed_replays_exactly(seed: int) -> None:
    first = live(seed)
    assert first.events > 500
    assert first.lives > 1
    assert live(seed) == first
    assert live(seed + 1).digest != first.digest


@pytest.mark.parametrize("hash_seed", ["1", "4711"])
def test_a_seed_replays_exactly_in_another_process(hash_seed: str) -> None:
    """Where sets and dicts of strings iterate in another order."""
    program = "from test_one_broker import live; print(live(14).digest)"
    here = str(Path(__file__).parent)
    path = os.pathsep.join([here, *filter(None, sys.path)])
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.strip() == live(14).digest


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(SOAK_SEEDS))
def test_long_lives(seed: int) -> None:
    live(1_000_000 + seed, SOAK_STEPS)
