"""Three brokers on one ZooKeeper live through a random life, from a seed: see `support/simulation/cluster_workload` for
what happens to them, `support/simulation/cluster_invariants` and `store_history` for what must hold.

    BRAIDLOG_SIM_SEED=123 .venv/bin/pytest tests/simulation/test_cluster.py -k replay
    BRAIDLOG_SIM_SEEDS=1000 .venv/bin/pytest tests/simulation/test_cluster.py      (make soak: more, and longer lives)
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from braidlog.testing.simulated.cluster import SimulatedCluster
from braidlog.testing.simulated.simulation import Simulation
from support.simulation.cluster_workload import SETTINGS, ClusterWorkload
from support.simulation.seeds import SeededLives

TESTS = str(Path(__file__).parents[1])
REPLAYED = 3


@contextmanager
def begin(seed: int, steps: int) -> Iterator[tuple[Simulation, ClusterWorkload]]:
    with SimulatedCluster(seed, settings=SETTINGS) as cluster:
        yield cluster.simulation, ClusterWorkload(cluster, steps)


LIVES = SeededLives(begin, __file__, quick=16, further=8, soak=100, soak_steps=50)


@LIVES.quick_lives
def test_what_must_hold_holds(workload: ClusterWorkload) -> None:
    assert workload.history.acknowledged
    assert workload.history.producer_ids
    assert workload.store.ids


test_replay = LIVES.replay()
test_long_lives = LIVES.long_lives()


def digest_of(seed: int) -> str:
    with begin(seed, LIVES.steps) as (simulation, workload):
        simulation.trace.keep_all()
        simulation.run(workload.run())
        return simulation.trace.digest()


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
