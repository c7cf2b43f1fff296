"""The Java client 3.9: one program of ours runs every scenario, each of its lines is a test here."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from tools.peers.kafka import TOOL_JVM

from support.broker import Broker

pytestmark = [pytest.mark.peer]

SOURCE = Path(__file__).parent / "java" / "ClientScenarios.java"
SCENARIOS = (
    *(f"codec-{codec}" for codec in ("none", "gzip", "snappy", "lz4", "zstd")),
    *(f"acks-{acks}" for acks in ("0", "1", "all")),
    "idempotent",
    "odd-records",
    "megabyte",
    "too-large",
    "offsets",
    "small-fetches",
    "thousand-partitions",
    "admin-topics",
    "admin-configs",
    "admin-records",
    "admin-cluster",
)


@pytest.fixture(scope="module")
def outcomes(broker: Broker, apache_kafka: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each scenario said, by its name."""
    if shutil.which("javac") is None:
        pytest.skip("no `javac` to compile the Java client's scenarios")
    classes = tmp_path_factory.mktemp("classes")
    classpath = f"{apache_kafka}/*"
    subprocess.run(["javac", "-d", str(classes), "-cp", classpath, str(SOURCE)], check=True, timeout=120)
    done = subprocess.run(
        ["java", *TOOL_JVM, "-cp", f"{classes}{os.pathsep}{classpath}", "ClientScenarios", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split(" ", 1) for line in done.stdout.splitlines() if " " in line]
    return {line[0]: line[1] for line in lines}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(outcomes: dict[str, str], scenario: str) -> None:
    assert outcomes.get(scenario) == "PASS"
