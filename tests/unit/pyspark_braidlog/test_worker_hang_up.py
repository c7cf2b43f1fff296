"""Processes that Spark hangs up on end without a word, and tell all else."""

from __future__ import annotations

import subprocess
import sys

import pytest

PLANNER = "pyspark.sql.streaming.python_streaming_source_runner"
DAEMON = "pyspark.daemon"
# A program that passes for one of PySpark's and ends as they do.
PROGRAM = """
import sys, traceback
from types import SimpleNamespace
from pyspark_braidlog import worker_process

__spec__ = SimpleNamespace(name=sys.argv[1])
worker_process.expect_hang_up()
try:
    try:
        raise {problem}
    finally:
        worker_process.end_planner_if_hung_up()
except BaseException:
    traceback.print_exc()
    sys.exit(7)
"""


@pytest.mark.parametrize(
    ("program", "problem", "code", "is_told"),
    [
        (PLANNER, "EOFError()", 0, False),
        (PLANNER, "BrokenPipeError()", 0, False),
        (PLANNER, "ValueError('x')", 7, True),
        (DAEMON, "BrokenPipeError()", 7, False),
        (DAEMON, "ConnectionResetError()", 7, False),
        (DAEMON, "ValueError('x')", 7, True),
        ("mine", "EOFError()", 7, True),
    ],
)
def test_only_the_hang_up_goes_untold(program: str, problem: str, code: int, is_told: bool) -> None:
    words = [sys.executable, "-c", PROGRAM.format(problem=problem), program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (code, is_told), done.stderr


# As in the process that lists the data sources there are: it imports ours, and makes none.
LOOK_UP = """
import sys, traceback
from types import SimpleNamespace

__spec__ = SimpleNamespace(name=sys.argv[1])
from pyspark_braidlog import DefaultSource
try:
    raise BrokenPipeError
except BaseException:
    traceback.print_exc()
    sys.exit(7)
"""


@pytest.mark.parametrize(("program", "is_told"), [(DAEMON, False), ("mine", True)])
def test_a_process_that_only_looked_for_data_sources_ends_as_silently(program: str, is_told: bool) -> None:
    words = [sys.executable, "-c", LOOK_UP, program]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (7, is_told), done.stderr
