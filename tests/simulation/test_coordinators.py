"""Groups and transactions on a broker that falls over, from a seed.

    BRAIDLOG_SIM_SEED=123 .venv/bin/pytest tests/simulation/test_coordinators.py -k replay

Members join, commit, leave and fall silent; transactions are committed, aborted and left lying; meanwhile the broker is
killed, stopped, runs out of disk, and (where every append is synced) loses power. What must hold: one owner a partition
and generation; a committed offset never goes back; a transaction is all or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from braidlog.testing.simulated.simulation import Simulation
from support.simulation.coordinator_workload import CoordinatorWorkload, is_synced, settings_for
from support.simulation.seeds import SeededLives


@contextmanager
def begin(seed: int, steps: int) -> Iterator[tuple[Simulation, CoordinatorWorkload]]:
    with Simulation(seed, settings_for(seed)) as simulation:
        yield simulation, CoordinatorWorkload(simulation, steps, is_synced(seed))


LIVES = SeededLives(begin, __file__, quick=10, further=15, soak=50, soak_from=2_000_000, soak_steps=60)


@LIVES.quick_lives
def test_what_must_hold_holds(workload: CoordinatorWorkload) -> None:
    assert workload.groups.generations > 0
    assert workload.transactions.committed > 0


test_replay = LIVES.replay()
test_long_lives = LIVES.long_lives()
