"""Failures that `tools.run_tests` does not try again: those that may mean that data was lost or is inconsistent.

Such a failure is rare by nature, so that a second run which passes proves nothing. They are known by the tests' paths,
by the marker `never_repeated` on a test, and by what noticed it: a failure that one of the judges raised.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parent.parent
MARKER = "never_repeated"

PATHS = (
    # Invariants, checked after every step of a seeded run.
    "simulation",
    "unit/cluster/test_store_model.py",
    "unit/controller/test_cluster_model.py",
    "unit/testing/simulated",
    # What is on disk after a power cut, and the rules of replication and of coordinators: they know no clock.
    "unit/coordinator",
    "unit/replication",
    "unit/storage",
    # Brokers, disks and clients that die while a history is kept.
    "cluster/test_clients_through_faults.py",
    "cluster/test_exactly_once.py",
    "cluster/test_failover.py",
    "cluster/test_groups_through_faults.py",
    "cluster/test_kafka_replication_peer.py",
    "cluster/test_mixed_matrix_peer.py",
    "cluster/test_replication.py",
    "cluster/test_replication_matrix.py",
    "cluster/test_restarts_under_load.py",
    "cluster/test_rolling_upgrade.py",
    "cluster/test_streams_through_faults.py",
    "cluster/test_walks_peer.py",
    "cluster/test_workers.py",
    "faults/test_broken_files.py",
    "faults/test_client_group_faults.py",
    "faults/test_client_transaction_faults.py",
    "faults/test_crashes.py",
    "faults/test_disks.py",
    "faults/test_exactly_once.py",
    "faults/test_fsync.py",
    "faults/test_history_checker.py",
    "faults/test_numbered.py",
    "faults/test_ownership.py",
    "faults/test_replicated_traffic.py",
    "faults/test_transaction_phases.py",
    "spark/test_spark_exactly_once.py",
)

# Modules of tests/support that judge what clients wrote and read, each in methods called check….
JUDGES = ("history_checker", "numbered", "ownership")

_PATHS = tuple(TESTS / path for path in PATHS)
_JUDGES = frozenset(TESTS / "support" / f"{name}.py" for name in JUDGES)


# Asked for each test of a file.
@cache
def is_never_repeated(path: Path) -> bool:
    return any(path == each or each in path.parents for each in _PATHS)


def mark(item: pytest.Item) -> None:
    if is_never_repeated(item.path):
        item.add_marker(MARKER)


def mark_judged(report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
    """A failure that a judge raised, in a test of anything else."""
    entries = call.excinfo.traceback if call.excinfo is not None else ()
    if any(entry.path in _JUDGES and "check" in entry.name for entry in entries):
        report.keywords = {**report.keywords, MARKER: 1}
