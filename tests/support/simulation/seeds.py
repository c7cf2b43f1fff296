"""Which seeds a simulation runs, and what it reports of one that failed.

BRAIDLOG_SIM_SEED=123 .venv/bin/pytest tests/simulation -k replay        replay one seed
BRAIDLOG_SIM_SEEDS=1000 .venv/bin/pytest tests/simulation                try that many
"""

from __future__ import annotations

import os
from typing import Protocol

import pytest

from braidlog.testing.simulated.simulation import Simulation

# The lines of the trace that a failure shows.
SHOWN = 80
SHOWN_OF_EACH = 20

unless_replaying = pytest.mark.skipif("BRAIDLOG_SIM_SEED" in os.environ, reason="one seed is replayed")
when_replaying = pytest.mark.skipif(
    "BRAIDLOG_SIM_SEED" not in os.environ, reason="BRAIDLOG_SIM_SEED names no seed to replay"
)


class SeededWorkload(Protocol):
    async def run(self) -> None: ...


def seeds(many: int) -> range:
    first = int(os.environ.get("BRAIDLOG_SIM_FIRST", "0"))
    return range(first, first + int(os.environ.get("BRAIDLOG_SIM_SEEDS", many)))


def replayed_seed(steps: int) -> tuple[int, int]:
    """The seed and the number of steps to replay."""
    return int(os.environ["BRAIDLOG_SIM_SEED"]), int(os.environ.get("BRAIDLOG_SIM_STEPS", steps))


def story_of(simulation: Simulation) -> str:
    """What happened last, without the bytes: all together, then what each broker says of itself."""
    story = list(simulation.trace.story)
    parts = ["\n".join(story[-SHOWN:])]
    for broker in simulation.brokers:
        own = [line for line in story if f" {broker.name}." in line or f" {broker.name} " in line]
        parts.append("\n".join([f"{broker.name}:", *own[-SHOWN_OF_EACH:]]))
    return "\n\n".join(parts)


def run_workload(simulation: Simulation, workload: SeededWorkload, seed: int, steps: int, file: str) -> None:
    try:
        simulation.run(workload.run())
    except Exception as problem:
        replay = f"BRAIDLOG_SIM_SEED={seed} BRAIDLOG_SIM_STEPS={steps} .venv/bin/pytest {file} -k replay"
        last = story_of(simulation) if len(simulation.brokers) > 1 else "\n".join(list(simulation.trace.last)[-SHOWN:])
        reported = f"seed {seed} failed: {problem}\nreplay: {replay}\nit ended with:\n{last}"
        raise AssertionError(reported) from problem
