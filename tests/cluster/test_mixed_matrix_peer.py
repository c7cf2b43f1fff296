"""Every role of a cluster of Kafka's brokers and ours moves to the other kind by every fault, and back, under load.

`make test-all` runs a cell of each kind of cluster on one host; `make soak` runs all, every broker on a host of its
own. `BRAIDLOG_MIXED_MATRIX=results.jsonl` appends each result to a file, leaves out the cells that are in it, and
prints the table of all; `BRAIDLOG_MIXED_MATRIX_CELLS="kafka leader:SIGKILL,…"` runs some;
`BRAIDLOG_MIXED_MATRIX_KAFKA=2.8.2` takes another Kafka, whose results belong in a file of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tools.peers.kafka import VERSION, VERSION_2_8, VERSION_3_4

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
    ("version", "victim", "fault"),
    [
        (VERSION, f"{KAFKA} group coordinator", "SIGSTOP past the session"),
        (VERSION, f"{BRAIDLOG} controller", "SIGKILL"),
        pytest.param(VERSION_3_4, f"{KAFKA} group coordinator", "SIGKILL", marks=pytest.mark.long),
        pytest.param(VERSION_2_8, f"{KAFKA} group coordinator", "SIGKILL", marks=pytest.mark.long),
    ],
)
def test_a_cell(
    kafka_libs_of: Callable[[str], Path],
    zookeeper: ZooKeeper,
    new_connect: Callable[[], str],
    tmp_path: Path,
    version: str,
    victim: str,
    fault: str,
) -> None:
    holder, _, _ = victim.partition(" ")
    with mixed_matrix_cluster(zookeeper, tmp_path, new_connect(), holder, kafka_libs_of(version)) as cluster:
        run_mixed_cell(cluster, victim, fault, list(KINDS.values())).check()


def wanted_cells(holder: str) -> list[Cell]:
    cells = all_cells(holder)
    chosen = os.environ.get("BRAIDLOG_MIXED_MATRIX_CELLS")
    return cells if not chosen else [cell for cell in cells if ":".join(cell) in chosen.split(",")]


def run(cluster: ReplicatedCluster, victim: str, fault: str) -> CellResult:
    return run_mixed_cell(cluster, victim, fault, list(KINDS.values()))


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_whole_matrix(kafka_libs_of: Callable[[str], Path], tmp_path: Path) -> None:
    version = os.environ.get("BRAIDLOG_MIXED_MATRIX_KAFKA", VERSION)
    libs = kafka_libs_of(version)
    results = Path(os.environ.get("BRAIDLOG_MIXED_MATRIX", tmp_path / "results.jsonl"))
    done = known_cells(results, REPLICAS)
    failed = []
    for holder in HOLDERS:
        left = [cell for cell in wanted_cells(holder) if cell not in done]
        start = partial(isolated_mixed_cluster, holder=holder, libs=libs)
        failed += run_cells(left, results, tmp_path / holder, start, run)
    print(table({version: results}), flush=True)
    assert failed == []
