"""Three brokers on one ZooKeeper live through a random life, from a seed: see `support/simulation/cluster_workload` for
what happens to them, `support/simulation/cluster_invariants` and `store_history` for what must hold.

    BRAIDLOG_SIM_SEED=123 .venv/bin/pytest tests/simulation/test_cluster.py -k replay
    BRAIDLOG_SIM_SEEDS=1000 .venv/bin/pytest tests/simulation/test_cluster.py      (make soak: more, and longer lives)
"""

from __future__ import annotations

import pytest

from braidlog.testing.simulated.cluster import SimulatedCluster
from support.simulation.cluster_workload import SETTINGS, ClusterWorkload
from support.simulation.seeds import replayed_seed, run_workload, seeds, unless_replaying, when_replaying
from support.soak import scaled

QUICK_SEEDS = 24
QUICK_STEPS = 12
SOAK_SEEDS = scaled(100)
SOAK_STEPS = 50


def live(seed: int, steps: int = QUICK_STEPS) -> ClusterWorkload:
    with SimulatedCluster(seed, settings=SETTINGS) as cluster:
        workload = ClusterWorkload(cluster, steps)
        run_workload(cluster.simulation, workload, seed, steps, __file__)
        return workload


@unless_replaying
@pytest.mark.parametrize("seed", seeds(QUICK_SEEDS))
def test_what_must_hold_holds(seed: int) -> None:
    workload = live(seed)
    assert workload.history.acknowledged
    assert workload.history.producer_ids
    assert workload.store.ids


@when_replaying
def test_replay() -> None:
    live(*replayed_seed(QUICK_STEPS))


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(SOAK_SEEDS))
def test_long_lives(seed: int) -> None:
    live(1_000_000 + seed, SOAK_STEPS)
