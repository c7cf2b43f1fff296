"""Faults of a cluster with three replicas, of which two must have a record: nothing acknowledged is lost or doubled.

`make test` runs a few cells of the matrix on three brokers and one ZooKeeper server, `make test-all` the same over
SASL_SSL between the brokers. `make soak` runs all of it, every node with a network and a disk of its own.
`BRAIDLOG_MATRIX=results.jsonl` appends each result to a file and leaves out the cells that are in it;
`BRAIDLOG_MATRIX_BROKERS=5` takes five brokers; `BRAIDLOG_MATRIX_CELLS=leader:SIGKILL,…` some.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from braidlog.local_cluster.zookeeper import ZooKeeper
from support.cluster import start_cluster
from support.replicated_traffic import KINDS
from support.replication_matrix import (
    FAULTS,
    NOT_SURVIVABLE,
    SETTINGS,
    VICTIMS,
    Cell,
    ReplicatedCluster,
    isolated_cluster,
    known_cells,
    run_cell,
    run_cells,
)
from support.secured_brokers import PLAIN, secure

SHORT = [("leader", "SIGKILL"), ("controller", "clean stop")]
BROKERS = int(os.environ.get("BRAIDLOG_MATRIX_BROKERS", "3"))


@pytest.fixture(scope="module")
def replicated(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ReplicatedCluster]:
    settings = {**SETTINGS, "zookeeper.connect": new_connect()}
    with start_cluster(zookeeper, tmp_path_factory.mktemp("matrix"), settings=settings) as cluster:
        yield ReplicatedCluster.of(cluster)


@pytest.mark.parametrize(("victim", "fault"), SHORT)
def test_a_cell(replicated: ReplicatedCluster, victim: str, fault: str) -> None:
    run_cell(replicated, victim, fault, list(KINDS.values())).check()


@pytest.mark.long
def test_cells_whose_brokers_speak_tls_and_log_in(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path
) -> None:
    settings = {**SETTINGS, "zookeeper.connect": new_connect()}
    running = start_cluster(zookeeper, tmp_path / "cluster", settings=settings)
    secure(running, PLAIN, tmp_path / "authority")
    with running as cluster:
        replicated = ReplicatedCluster.of(cluster)
        for victim, fault in SHORT:
            run_cell(replicated, victim, fault, list(KINDS.values())).check()


def wanted_cells() -> list[Cell]:
    chosen = os.environ.get("BRAIDLOG_MATRIX_CELLS")
    if chosen:
        return [(victim, fault) for victim, _, fault in (each.partition(":") for each in chosen.split(","))]
    cells = itertools.product(VICTIMS, FAULTS)
    return [cell for cell in cells if cell not in NOT_SURVIVABLE]


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_whole_matrix(tmp_path: Path) -> None:
    named = os.environ.get("BRAIDLOG_MATRIX")
    results = None if named is None else Path(named)
    done = known_cells(results, BROKERS)
    failed = run_cells(
        [cell for cell in wanted_cells() if cell not in done],
        results,
        tmp_path,
        lambda place: isolated_cluster(place, BROKERS),
        lambda cluster, victim, fault: run_cell(cluster, victim, fault, list(KINDS.values())),
    )
    assert failed == []
