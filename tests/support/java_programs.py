"""The interop tests' Java programs, each compiled with what it uses; a machine without Java skips the test."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tools.peers.java import JavaPrograms, newer_client_libs, streams_libs
from tools.peers.kafka import kafka_libs
from tools.peers.maven import PeerMissing

SOURCES = Path(__file__).parent.parent / "interop" / "java"
SHARED = ("Scenarios.java", "Ownership.java", "Member.java")
CLIENT_PROGRAMS = (
    *SHARED,
    "GroupScenarios.java",
    "TransactionScenarios.java",
    "GroupMember.java",
    "TransformLoop.java",
)
SCENARIOS_END_WITHIN_S = 280.0

# The Java clients by the name that tests use.
OLDER = "3.9"
NEWER = "4.1"


def client_programs(client: str) -> JavaPrograms:
    if client == NEWER:
        return _programs(newer_client_libs, *CLIENT_PROGRAMS, "RegexScenarios.java")
    return _programs(kafka_libs, *CLIENT_PROGRAMS)


def streams_programs() -> JavaPrograms:
    return _programs(streams_libs, "WordCount.java")


def _programs(libs: Callable[[], Path], *names: str) -> JavaPrograms:
    try:
        return JavaPrograms(libs(), [SOURCES / name for name in names])
    except PeerMissing as missing:
        pytest.skip(str(missing))


def outcomes(programs: JavaPrograms, main_class: str, *arguments: str) -> dict[str, str]:
    """What each scenario said, by its name."""
    done = subprocess.run(
        programs.command(main_class, *arguments), capture_output=True, text=True, timeout=SCENARIOS_END_WITHIN_S
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)
    # What the client logged explains a failure; it belongs to no single scenario.
    return {
        name: outcome if outcome == "PASS" else f"{outcome}\n{done.stderr[-8000:]}" for name, outcome in said.items()
    }
