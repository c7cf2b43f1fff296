"""Copy one topic into another exactly once, while workers and broker are killed at random moments.

The seed is printed and decides everything that is killed and when; `BRAIDLOG_SEED=7` runs that one again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.copy_scenario import CopyScenario
from support.soak import scaled


def copy_through(kind: str, place: Path, kills: int, seed: int, *, static: bool) -> None:
    seed = int(os.environ.get("BRAIDLOG_SEED", seed))
    copying = CopyScenario(kind, place, seed, static=static)
    print(f"seed {seed}, {kills} kills")
    copying.run(kills)
    print(f"{copying.aborted} records of aborted transactions; deaths: {copying.deaths}")
    assert copying.aborted > 0, "no transaction was cut short, so nothing was shown"
    assert len(copying.deaths) >= kills
    assert {"broker", *copying.names} <= set(copying.deaths), "everybody died at least once"


@pytest.mark.timeout(600)
def test_a_dozen_kills_copy_everything_once(target_kind: str, tmp_path: Path) -> None:
    copy_through(target_kind, tmp_path / "data", 12, seed=3, static=True)


@pytest.mark.soak
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("seed", range(100, 100 + scaled(1)))
def test_hundreds_of_kills_copy_everything_once(target_kind: str, tmp_path: Path, seed: int, static: bool) -> None:
    copy_through(target_kind, tmp_path / "data", scaled(60), seed, static=static)
