"""Every role of a cluster of Kafka's brokers and ours moves to the other kind by every fault, and back, under load.

`make test-all` runs a cell of each kind of cluster on one host; `make soak` runs all, every broker on a host of its
own. `BRAIDLOG_MIXED_MATRIX=results.jsonl` appends each result to a file, leaves out the cells that are in it, and
prints the table of all; `BRAIDLOG_MIXED_MATRIX_CELLS="kafka leader:SIGKILL,…"` runs some.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from braidlog.local_cluster.zookeeper import ZooKeeper
from support.broker import BRAIDLOG, KAFKA
from support.mixed_matrix import (
    HOLDERS,
    all_cells,
    isolated_mixed_cluster,
    mixed_matrix_cluster,
    run_mixed_cell,
    table,
)
from support.replicated_traffic import KINDS
from support.replication_matrix import REPLICAS, Cell, CellResult, ReplicatedCluster, known_cells, run_cells

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka")]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("holder", "role", "fault"),
    [(KAFKA, "group coordinator", "SIGSTOP past the session"), (BRAIDLOG, "controller", "SIGKILL")],
)
def test_a_cell(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path, holder: str, role: str, fault: str
) -> None:
    with mixed_matrix_cluster(zookeeper, tmp_path, new_connect(), holder) as cluster:
        run_mixed_cell(cluster, f"{holder} {role}", fault, list(KINDS.values())).check()


def wanted_cells(holder: str) -> list[Cell]:
    cells = all_cells(holder)
    chosen = os.environ.get("BRAIDLOG_MIXED_MATRIX_CELLS")
    return cells if not chosen else [cell for cell in cells if ":".join(cell) in chosen.split(",")]


def run(cluster: ReplicatedCluster, victim: str, fault: str) -> CellResult:
    return run_mixed_cell(cluster, victim, fault, list(KINDS.values()))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_whole_matrix(tmp_path: Path) -> None:
    results = Path(os.environ.get("BRAIDLOG_MIXED_MATRIX", tmp_path / "results.jsonl"))
    done = known_cells(results, REPLICAS)
    failed = []
    for holder in HOLDERS:
        left = [cell for cell in wanted_cells(holder) if cell not in done]
        failed += run_cells(left, results, tmp_path / holder, partial(isolated_mixed_cluster, holder=holder), run)
    print(table(results), flush=True)
    assert failed == []
