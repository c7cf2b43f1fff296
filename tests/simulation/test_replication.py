"""Three brokers on one ZooKeeper, and three replicas of every partition, live through a random life, from a seed: see
`support/simulation/replicated_workload` for what happens to them, `support/simulation/replication_invariants` for what
must hold.

    BRAIDLOG_SIM_SEED=123 .venv/bin/pytest tests/simulation/test_replication.py -k replay
    BRAIDLOG_SIM_SEEDS=1000 .venv/bin/pytest tests/simulation/test_replication.py  (make soak: more, and longer lives)
    PYTHONPATH=src:tests .venv/bin/python -m support.simulation.many_lives test_replication     (on, up to 100,000)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from braidlog.testing.simulated.cluster import SimulatedCluster
from braidlog.testing.simulated.simulation import Simulation
from support.simulation.replicated_workload import ReplicatedWorkload, has_unclean_topic, is_synced, settings_for
from support.simulation.seeds import SeededLives


@contextmanager
def begin(seed: int, steps: int) -> Iterator[tuple[Simulation, ReplicatedWorkload]]:
    with SimulatedCluster(seed, settings=settings_for(seed)) as cluster:
        yield (
            cluster.simulation,
            ReplicatedWorkload(cluster, steps, synced=is_synced(seed), unclean=has_unclean_topic(seed)),
        )


LIVES = SeededLives(begin, __file__, quick=200, soak=100, soak_steps=50)


@LIVES.quick_lives
def test_what_must_hold_of_replicas_holds(workload: ReplicatedWorkload) -> None:
    assert workload.history.deliveries


test_replay = LIVES.replay()
test_long_lives = LIVES.long_lives()
test_many_lives = LIVES.many_lives()
