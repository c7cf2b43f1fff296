from __future__ import annotations

import os
import signal
import subprocess
import sys

from braidlog.storage.crash_points import CrashPlan, crash_point

PROGRAM = """
from braidlog.storage.crash_points import crash_point
for number in range(4):
    crash_point("mid-roll")
    crash_point("after-write")
    print(number, flush=True)
"""


def run(crash_at: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "BRAIDLOG_CRASH_AT": crash_at}
    return subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60)


def test_the_process_dies_at_the_named_passage() -> None:
    done = run("after-write:3")
    assert done.returncode == -signal.SIGKILL
    assert done.stdout.split() == ["0", "1"]


def test_a_plan_counts_only_its_own_point() -> None:
    plan = CrashPlan("mid-swap:2")
    assert [plan.passes(point) for point in ("mid-roll", "mid-swap", "after-write", "mid-swap")] == [
        True,
        True,
        True,
        False,
    ]
    assert not CrashPlan("mid-roll").passes("mid-roll")


def test_without_a_plan_nothing_happens() -> None:
    crash_point("after-write")
