"""Groups and transactions on a broker that falls over, from a seed.

    BRAIDLOG_SIM_SEED=123 .venv/bin/pytest tests/simulation/test_coordinators.py -k replay

Members join, commit, leave and fall silent; transactions are committed, aborted and left lying; meanwhile the broker is
killed, stopped, runs out of disk, and (where every append is synced) loses power. What must hold: one owner a partition
and generation; a committed offset never goes back; a transaction is all or nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from braidlog.testing.simulated.simulation import Simulation
from support.simulation.coordinator_workload import CoordinatorWorkload, is_synced, settings_for
from support.simulation.seeds import replayed_seed, run_workload, seeds, unless_replaying, when_replaying
from support.soak import scaled

QUICK_SEEDS = 25
QUICK_STEPS = 12
SOAK_SEEDS = scaled(50)
SOAK_STEPS = 60


class Life(NamedTuple):
    lives: int
    generations: int
    commits: int
    transactions: int
    committed: int


def live(seed: int, steps: int = QUICK_STEPS) -> Life:
    with Simulation(seed, settings_for(seed)) as simulation:
        workload = CoordinatorWorkload(simulation, steps, is_synced(seed))
        run_workload(simulation, workload, seed, steps, __file__)
        return Life(
            simulation.broker.lives,
            workload.groups.generations,
            workload.groups.commits,
            len(workload.transactions.transactions),
            workload.transactions.committed,
        )


@unless_replaying
@pytest.mark.parametrize("seed", seeds(QUICK_SEEDS))
def test_what_must_hold_holds(seed: int) -> None:
    life = live(seed)
    assert life.generations > 0
    assert life.committed > 0


@when_replaying
def test_replay() -> None:
    live(*replayed_seed(QUICK_STEPS))


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(SOAK_SEEDS))
def test_long_lives(seed: int) -> None:
    live(2_000_000 + seed, SOAK_STEPS)
