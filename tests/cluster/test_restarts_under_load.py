"""Producers with default settings notice neither a rolling restart nor ZooKeeper being gone for a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from braidlog.local_cluster.zookeeper import ZooKeeper, ZooKeeperServer
from support.client_history import GaveUp
from support.cluster import start_cluster
from support.eventually import eventually
from support.replicated_traffic import KINDS, Traffic
from support.replication_matrix import SETTINGS, ReplicatedCluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

AWAY_S = 60.0


@pytest.fixture
def replicated(zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path) -> Iterator[ReplicatedCluster]:
    settings = {**SETTINGS, "zookeeper.connect": new_connect()}
    with start_cluster(zookeeper, tmp_path, settings=settings) as cluster:
        yield ReplicatedCluster.of(cluster)


def traffic_on(replicated: ReplicatedCluster) -> Traffic:
    topics = {kind.name: kind for kind in KINDS.values()}
    replicated.create(topics, [(0, 1, 2), (1, 2, 0)])
    return Traffic(replicated.bootstrap, topics)


def nothing_failed(traffic: Traffic) -> None:
    verdict = traffic.verdict()
    setbacks = [text for writer in traffic.writers for text in writer.setbacks]
    given_up = [each for each in traffic.history.operations if isinstance(each, GaveUp)] if verdict.gave_up else []
    assert (traffic.problems, verdict.findings, setbacks, given_up) == ([], (), [], [])


def test_a_rolling_restart(replicated: ReplicatedCluster) -> None:
    traffic = traffic_on(replicated)
    with traffic.running():
        for broker in replicated.cluster.brokers:
            broker.restart()
            replicated.await_whole(traffic.topics)
            traffic.await_progress()
    nothing_failed(traffic)


def test_an_ensemble_that_is_away_for_a_minute(replicated: ReplicatedCluster, zookeeper: ZooKeeper) -> None:
    traffic = traffic_on(replicated)
    with traffic.running():
        zookeeper.each(ZooKeeperServer.stop)
        back_at = time.monotonic() + AWAY_S
        try:
            while time.monotonic() < back_at:
                traffic.await_progress()
        finally:
            zookeeper.each(ZooKeeperServer.start)
        eventually(lambda: all(server.serves() for server in zookeeper.servers), 120)
        replicated.await_whole(traffic.topics)
        traffic.await_progress()
    nothing_failed(traffic)
