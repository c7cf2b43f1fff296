"""A session whose workers run another Python than the driver's is told so in one sentence."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

import pytest

import pyspark_braidlog

# The driver finds braidlog by itself, as an installed one; PYTHONPATH would show it to the workers too.
SOURCE = str(Path(pyspark_braidlog.__file__).parent.parent)
PROGRAM = f"""
import sys
sys.path.insert(0, {SOURCE!r})
from pyspark_braidlog.errors import clear_error
"""
OURS = """
from pyspark_braidlog.session import spark_session
make = lambda: spark_session("elsewhere", master="local[1]")
"""
PLAIN = """
from pyspark.sql import SparkSession
make = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate
"""
READ = """
try:
    make().read.format("braidlog").option("kafka.bootstrap.servers", "h:1").option("subscribe", "t").load()
except Exception as problem:
    print(clear_error(problem))
"""


@pytest.fixture(scope="module")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same Python without a single package."""
    home = tmp_path_factory.mktemp("bare") / "venv"
    venv.create(home, with_pip=False)
    return home / "bin" / "python"


def reported(program: str, **variables: str) -> str:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYSPARK_PYTHON")}
    words = [sys.executable, "-c", PROGRAM + program + READ]
    done = subprocess.run(words, env=environment | variables, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_session_of_ours_is_not_made(bare_python: Path) -> None:
    said = reported(OURS, PYSPARK_PYTHON=str(bare_python))
    assert said.startswith(f"PYSPARK_PYTHON has Spark's workers run {bare_python}, Python 3."), said
    assert f"in which braidlog is not installed (this program runs {sys.executable}" in said
    assert said.count("\n") == 0


# The same sentence as below, and another Spark.
@pytest.mark.long
def test_an_ordinary_session_is_explained(bare_python: Path) -> None:
    said = reported(PLAIN, PYSPARK_PYTHON=str(bare_python))
    assert said.startswith("Spark's workers do not have braidlog"), said
    assert f"they run {bare_python}, and this program {sys.executable}; set PYSPARK_PYTHON" in said


def test_an_ordinary_session_that_takes_the_first_python_on_the_path(bare_python: Path) -> None:
    said = reported(PLAIN, PATH=f"{bare_python.parent}{os.pathsep}{os.environ['PATH']}")
    assert said.startswith("Spark's workers do not have braidlog"), said
    assert f"they run {bare_python}3, and this program {sys.executable}" in said, said
