"""The interop tests' Java programs, each compiled with what it uses; a machine without Java skips the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tools.peers.java import JavaPrograms, newer_client_libs, streams_libs
from tools.peers.kafka import kafka_libs
from tools.peers.maven import PeerMissing

SOURCES = Path(__file__).parent.parent / "interop" / "java"
SHARED = ("Scenarios.java", "Ownership.java", "Member.java")
GROUPS = ("GroupScenarios.java", "GroupAdministration.java", "GroupMember.java")
TRANSACTIONS = (
    "TransactionScenarios.java",
    "TransactionAdministration.java",
    "TransformLoop.java",
    "CopyWorker.java",
)
CLIENT_PROGRAMS = (*SHARED, *GROUPS, *TRANSACTIONS, "ClusterTraffic.java")

# The Java clients by the name that tests use.
OLDER = "3.9"
NEWER = "4.1"


def client_programs(client: str) -> JavaPrograms:
    if client == NEWER:
        return _programs(newer_client_libs, *CLIENT_PROGRAMS, "RegexScenarios.java")
    return _programs(kafka_libs, *CLIENT_PROGRAMS)


def streams_programs() -> JavaPrograms:
    return _programs(streams_libs, "WordCount.java")


def tool_runner() -> JavaPrograms:
    return _programs(kafka_libs, "ToolRunner.java")


def _programs(libs: Callable[[], Path], *names: str) -> JavaPrograms:
    try:
        return JavaPrograms(libs(), [SOURCES / name for name in names])
    except PeerMissing as missing:
        pytest.skip(str(missing))
