"""Failures that may mean lost or inconsistent data are known, wherever they turn up."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.never_repeated import MARKER, PATHS, TESTS, is_never_repeated, mark_judged
from support.numbered import PartitionLedger

# What keeps a history, and judges it as a whole.
KEEPS_HISTORY = re.compile(
    r"support\.(history_checker|mixed_matrix|power_cuts|replicated_traffic|replication_matrix)\b"
)


def test_the_paths_exist() -> None:
    assert [path for path in PATHS if not (TESTS / path).exists()] == []


def test_what_is_below_a_path_is_meant_too() -> None:
    assert is_never_repeated(TESTS / "simulation" / "test_replication.py")
    assert is_never_repeated(TESTS / "cluster" / "test_replication_matrix.py")
    assert not is_never_repeated(TESTS / "unit" / "client" / "admin" / "test_cluster_call.py")


def test_every_test_that_judges_a_history_is_among_them() -> None:
    judging = [path for path in TESTS.rglob("test_*.py") if KEEPS_HISTORY.search(path.read_text())]
    assert TESTS / "cluster" / "test_replication_matrix.py" in judging
    here = Path(__file__)
    assert [path for path in judging if not is_never_repeated(path) and path != here] == []


def test_a_run_marks_them() -> None:
    files = ["tests/unit/storage/log/test_power_cut.py", "tests/unit/support/test_never_repeated.py"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", "-m", MARKER, *files]
    told = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, timeout=120, check=True).stdout
    assert files[0] in told
    assert files[1] not in told


def _lost() -> None:
    PartitionLedger("t", 0, False, 5, {0, 1}).check([(0, 0)])


def _too_late() -> None:
    raise TimeoutError


@pytest.mark.parametrize(("fails", "judged"), [(_lost, True), (_too_late, False)])
def test_what_a_judge_raises_is_final_in_every_test(fails: Callable[[], None], judged: bool) -> None:
    call = pytest.CallInfo.from_call(fails, "call")
    report = pytest.TestReport("t.py::a", ("t.py", 1, "a"), {}, "failed", None, "call")
    mark_judged(report, call)
    assert (MARKER in report.keywords) == judged
