"""Groups and transactions over three brokers, from a seed: see `support/simulation/cluster_coordinators`.

    BRAIDLOG_SIM_SEED=123 .venv/bin/pytest tests/simulation/test_cluster_coordinators.py -k replay

Coordinators are killed, paused, cut off and moved, also between a transaction's decision and its markers. What must
hold: one owner a partition and generation; no committed offset goes back; a transaction is all or nothing, and once;
none hangs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from braidlog.testing.simulated.cluster import SimulatedCluster
from braidlog.testing.simulated.simulation import Simulation
from support.simulation.cluster_coordinators import ClusterCoordinators, is_synced, settings_for
from support.simulation.seeds import SeededLives


@contextmanager
def begin(seed: int, steps: int) -> Iterator[tuple[Simulation, ClusterCoordinators]]:
    with SimulatedCluster(seed, settings=settings_for(seed)) as cluster:
        yield cluster.simulation, ClusterCoordinators(cluster, steps, is_synced(seed))


LIVES = SeededLives(begin, __file__, quick=3, further=5, soak=50, soak_from=3_000_000, soak_steps=40)


@LIVES.quick_lives
def test_what_must_hold_holds(workload: ClusterCoordinators) -> None:
    assert workload.groups.commits > 0
    assert workload.transactions.committed > 0


test_replay = LIVES.replay()
test_long_lives = LIVES.long_lives()
