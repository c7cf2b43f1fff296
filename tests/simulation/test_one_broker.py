"""One broker lives through a random life, from a seed: see `support/simulation/workload` for what happens to it, and
`support/simulation/invariants` for what must hold.

    BRAIDLOG_SIM_SEED=123 .venv/bin/pytest tests/simulation        replay one seed
    BRAIDLOG_SIM_SEEDS=1000 .venv/bin/pytest tests/simulation      try that many (make soak: more, and longer lives)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from braidlog.testing.simulated.simulation import Simulation
from support.simulation.seeds import SeededLives
from support.simulation.settings import settings_for
from support.simulation.workload import Workload


@contextmanager
def begin(seed: int, steps: int) -> Iterator[tuple[Simulation, Workload]]:
    with Simulation(seed, settings_for(seed)) as simulation:
        yield simulation, Workload(simulation, steps)


LIVES = SeededLives(begin, __file__, quick=16, further=44, soak=100, soak_steps=60)


@LIVES.quick_lives
def test_what_must_hold_holds(workload: Workload) -> None:
    assert workload.history.acknowledged_count > 0


test_replay = LIVES.replay()
test_long_lives = LIVES.long_lives()
