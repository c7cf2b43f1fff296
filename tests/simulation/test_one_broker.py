"""One broker lives through a random life, from a seed: see `support/simulation/workload` for what happens to it, and
`support/simulation/invariants` for what must hold.

    BRAIDLOG_SIM_SEED=123 .venv/bin/pytest tests/simulation        replay one seed
    BRAIDLOG_SIM_SEEDS=1000 .venv/bin/pytest tests/simulation      try that many (make soak: more, and longer lives)
"""

from __future__ import annotations

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
    lives: int
    acknowledged: int


def live(seed: int, steps: int = QUICK_STEPS) -> Life:
    with Simulation(seed, settings_for(seed)) as simulation:
        workload = Workload(simulation, steps)
        run_workload(simulation, workload, seed, steps, __file__)
        return Life(simulation.broker.lives, workload.history.acknowledged_count)


@unless_replaying
@pytest.mark.parametrize("seed", seeds(QUICK_SEEDS))
def test_what_must_hold_holds(seed: int) -> None:
    life = live(seed)
    assert life.acknowledged > 0


@when_replaying
def test_replay() -> None:
    live(*replayed_seed(QUICK_STEPS))


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(SOAK_SEEDS))
def test_long_lives(seed: int) -> None:
    live(1_000_000 + seed, SOAK_STEPS)
