"""Exactly once through kill -9: of tasks before and after their commit, of the driver before Spark's commit log."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.broker import start_target
from support.spark_sink_faults import AFTER_COMMIT, BEFORE_COMMIT, BOTH, DRIVER, DRIVER_COMMIT, FIRST_ROWS, WORKER
from support.spark_sink_kills import Copying

SOAK_LIVES = int(os.environ.get("BRAIDLOG_SOAK_LIVES", "40"))
SOAK_SEED = int(os.environ.get("BRAIDLOG_SOAK_SEED", "9"))


@pytest.fixture(scope="module", params=["braidlog", pytest.param("kafka", marks=pytest.mark.peer)])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with start_target(request.param, tmp_path_factory.mktemp(request.param) / "data") as broker:
        yield broker.bootstrap


@pytest.mark.timeout(1200)
def test_kills_double_nothing_and_lose_nothing(bootstrap: str, tmp_path: Path) -> None:
    copying = Copying(bootstrap, tmp_path / "once")
    copying.add_rows(120)
    # Workers die with rows in an open transaction, before and after their commit; then the driver, when all are done.
    of_workers = [(FIRST_ROWS, 1, WORKER), (BEFORE_COMMIT, 1, WORKER), (AFTER_COMMIT, 0, WORKER)]
    assert not copying.live(copying.plan([*of_workers, (DRIVER_COMMIT, 0, DRIVER)]))
    # The driver dies under a task that has rows still to come, and another task lives on.
    assert not copying.live(copying.plan([(FIRST_ROWS, 1, DRIVER)]))
    copying.finish()
    assert len(copying.deaths()) == 5
    copying.check_exactly_once()


@pytest.mark.timeout(300)
def test_at_least_once_may_double_what_a_kill_interrupted(bootstrap: str, tmp_path: Path) -> None:
    copying = Copying(bootstrap, tmp_path / "least", delivery="at-least-once")
    copying.add_rows(40)
    assert not copying.live(copying.plan([(DRIVER_COMMIT, 0, DRIVER)]))
    copying.finish()
    found = copying.copied()
    assert set(found) == {f"row {number}" for number in range(40)}
    assert set(found.values()) == {2}


@pytest.mark.soak
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("shuffle", ["", "2"], ids=["as read", "shuffled"])
def test_many_kills_double_nothing_and_lose_nothing(bootstrap: str, tmp_path: Path, shuffle: str) -> None:
    draw = random.Random(SOAK_SEED)
    copying = Copying(bootstrap, tmp_path / f"soak{shuffle}", shuffle=shuffle)
    for _ in range(SOAK_LIVES):
        copying.add_rows()
        copying.live(copying.drawn_plan(draw))
    copying.finish()
    print(f"seed {SOAK_SEED}: {len(copying.deaths())} deaths in {copying.lives} lives")
    copying.check_exactly_once()
    assert {BOTH, DRIVER, WORKER} == {each.split()[1] for each in copying.deaths()}
