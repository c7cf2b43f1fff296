"""Our client's transactions under faults: exactly-once copying through kills, connections cut at every request.

The seed is printed and decides everything that is killed and when; `BRAIDLOG_SEED=7` runs that one again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.exactly_once import Copying


def copy_through(kind: str, place: Path, kills: int, seed: int, *, static: bool) -> None:
    seed = int(os.environ.get("BRAIDLOG_SEED", seed))
    copying = Copying(kind, place, seed, static=static, client="braidlog")
    print(f"seed {seed}, {kills} kills")
    copying.run(kills)
    print(f"{copying.aborted} records of aborted transactions; deaths: {copying.deaths}")
    assert copying.aborted > 0, "no transaction was cut short, so nothing was shown"
    assert len(copying.deaths) >= kills
    assert {"broker", *copying.names} <= set(copying.deaths), "everybody died at least once"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
def test_our_client_copies_everything_once_through_a_dozen_kills(
    target_kind: str, tmp_path: Path, static: bool
) -> None:
    copy_through(target_kind, tmp_path / "data", 12, seed=4 if static else 5, static=static)


@pytest.mark.soak
@pytest.mark.parametrize("static", [True, False], ids=["static", "dynamic"])
@pytest.mark.parametrize("seed", [200, 201])
def test_our_client_copies_everything_once_through_hundreds_of_kills(
    target_kind: str, tmp_path: Path, seed: int, static: bool
) -> None:
    copy_through(target_kind, tmp_path / "data", 200, seed, static=static)
