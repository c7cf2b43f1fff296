"""What a test costs counts all that it started, and stands in the order of the costs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tools.cpu_record import Cost, CpuRecorder, cpu_s, lines

BUSY_S = 0.2
BUSY = f"import time\nwhile time.process_time() < {BUSY_S}: pass\n"


def test_children_count_while_they_run_and_when_they_have_ended() -> None:
    before = cpu_s(os.getpid())
    # A child of a child, which is still there when the costs are read.
    parent = f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {BUSY!r}])\nprint(flush=True)\ninput()"
    running = subprocess.Popen([sys.executable, "-c", parent], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with running:
        assert running.stdout is not None
        running.stdout.readline()
        while_it_runs = cpu_s(os.getpid())
        assert while_it_runs - before >= BUSY_S - 0.05
        running.communicate()
    assert cpu_s(os.getpid()) >= while_it_runs


def test_a_process_that_has_ended_costs_nothing() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    assert cpu_s(ended.pid) == 0.0


def test_the_costliest_come_first() -> None:
    costs = [Cost("a.py::one", 0.0, 1.0, 0.0), Cost("b.py::two", 0.5, 1.0, 0.25), Cost("a.py::three", 0.0, 1.5, 0.0)]
    assert list(lines(costs)) == [
        "     4.25  3 tests",
        "",
        "     2.50  a.py (2)",
        "     1.75  b.py (1)",
        "",
        "    setup      call  teardown",
        "     0.50      1.00      0.25  b.py::two",
        "     0.00      1.50      0.00  a.py::three",
        "     0.00      1.00      0.00  a.py::one",
    ]


def test_a_test_has_three_phases(tmp_path: Path) -> None:
    recorder = CpuRecorder(tmp_path / "costs")
    for when, cost in (("setup", 1.0), ("call", 2.0), ("teardown", 3.0)):
        report = pytest.TestReport("t.py::a", ("t.py", 1, "a"), {}, "passed", None, when)  # type: ignore[arg-type]
        report.user_properties.append(("cpu_s", cost))
        recorder.pytest_runtest_logreport(report)
    recorder.pytest_sessionfinish()
    assert (tmp_path / "costs").read_text().splitlines()[-1] == "     1.00      2.00      3.00  t.py::a"
