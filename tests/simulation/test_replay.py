"""A seed replays exactly, real clients included: all that happened, byte by byte, also in another process.

There sets and dicts of strings iterate in another order, and objects lie at other addresses.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Final

import pytest

from support.simulation.traces import trace_of

# One life of each workload in every run: a second one shows the same.
CASES: Final = [
    ("clients", 3),
    pytest.param("clients", 4, marks=pytest.mark.long),
    ("one-broker", 3),
    pytest.param("one-broker", 14, marks=pytest.mark.long),
    ("coordinators", 7),
]


@pytest.mark.parametrize(("workload", "seed"), CASES)
def test_a_seed_replays_exactly(workload: str, seed: int) -> None:
    first = trace_of(workload, seed)
    assert len(first) > 500
    assert sum(" START " in line for line in first) > 1, "its broker died and came back"
    assert trace_of(workload, seed) == first
    here = os.environ.get("PYTHONHASHSEED")
    assert _elsewhere(workload, seed, "4711" if here == "1" else "1") == first


def test_another_seed_is_another_life() -> None:
    assert trace_of("clients", 5) != trace_of("clients", 6)


def _elsewhere(workload: str, seed: int, hash_seed: str) -> list[str]:
    program = f"from support.simulation.traces import trace_of; print(*trace_of({workload!r}, {seed}), sep='\\n')"
    path = os.pathsep.join(filter(None, sys.path))
    answer = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.splitlines()
