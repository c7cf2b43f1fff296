"""Three brokers on one ZooKeeper live through a random life, from a seed: see `support/simulation/cluster_workload` for
what happens to them, `support/simulation/cluster_invariants` and `store_history` for what must hold.

    BRAIDLOG_SIM_SEED=123 .venv/bin/pytest tests/simulation/test_cluster.py -k replay
    BRAIDLOG_SIM_SEEDS=1000 .venv/bin/pytest tests/simulation/test_cluster.py      (make soak: more, and longer lives)
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from braidlog.testing.simulated.cluster import SimulatedCluster
from support.simulation.cluster_workload import SETTINGS, ClusterWorkload
from support.simulation.seeds import replayed_seed, run_workload, seeds, unless_replaying, when_replaying
from support.soak import scaled

TESTS = str(Path(__file__).parents[1])
REPLAYED = 3
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


def digest_of(seed: int) -> str:
    with SimulatedCluster(seed, settings=SETTINGS) as cluster:
        cluster.run(ClusterWorkload(cluster, QUICK_STEPS).run())
        return cluster.simulation.trace.digest()


def test_a_seed_replays_exactly_also_in_another_process() -> None:
    """There sets and dicts of strings iterate in another order, and objects lie at other addresses."""
    first = digest_of(REPLAYED)
    assert digest_of(REPLAYED) == first
    answer = subprocess.run(
        [sys.executable, "-c", f"from simulation.test_cluster import digest_of; print(digest_of({REPLAYED}))"],
        env={**os.environ, "PYTHONHASHSEED": "4711", "PYTHONPATH": os.pathsep.join(filter(None, [TESTS, *sys.path]))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.split()[-1] == first
