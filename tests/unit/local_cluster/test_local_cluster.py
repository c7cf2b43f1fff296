"""What is said of waits; `tests/cluster/test_cluster_up.py` has whole clusters."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.core.errors import UserError
from braidlog.local_cluster import local_cluster
from braidlog.local_cluster.cluster_directory import ClusterDirectory
from braidlog.local_cluster.local_cluster import LocalCluster, replication_settings
from braidlog.local_cluster.zookeeper import lasting_ports


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[ClusterDirectory]:
    (nobody,) = lasting_ports(1)
    directory = ClusterDirectory(tmp_path / "data", f"127.0.0.1:{nobody}", lambda line: None)
    yield directory
    directory.close()


def test_a_start_that_takes_long_tells_what_the_brokers_do(
    directory: ClusterDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_cluster, "_SAY_AFTER_S", 0.5)
    said: list[str] = []
    settings = {"zookeeper.connection.timeout.ms": "6000"}
    cluster = LocalCluster(directory, "127.0.0.1", lasting_ports(1), settings, said.append)
    with pytest.raises(UserError, match="broker 0 did not start"):
        cluster.start()
    assert said[0].startswith("broker 0 is not ready yet; the last it said: ")


def test_what_takes_long_is_said_and_what_does_not_is_not(
    directory: ClusterDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    heard = threading.Event()

    def say(line: str) -> None:
        said.append(line)
        heard.set()

    cluster = LocalCluster(directory, "127.0.0.1", [], {}, say)
    with cluster._telling("quick"):
        pass
    monkeypatch.setattr(local_cluster, "_SAY_AFTER_S", 0.01)
    with cluster._telling("slow"):
        assert heard.wait(30)
    assert said == ["slow"]


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, 1, 1), (2, 2, 1), (3, 3, 2), (5, 3, 2)])
def test_one_broker_of_three_may_fail_and_fewer_brokers_serve_all_the_same(
    brokers: int, replicas: int, in_sync: int
) -> None:
    assert replication_settings(brokers) == {
        "default.replication.factor": str(replicas),
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "min.insync.replicas": str(in_sync),
        "transaction.state.log.min.isr": str(in_sync),
    }
