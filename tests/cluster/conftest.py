"""One real ZooKeeper and one cluster for a test run; clusters of single tests have a path of their own in ZooKeeper."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import KafkaException

from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing import Cluster
from support import confluent
from support.cluster import BASE_SETTINGS, agreed_view
from support.eventually import eventually

_chroots = itertools.count(1)
_probes = itertools.count(1)


@pytest.fixture(scope="session")
def braidlog_settings() -> Mapping[str, object]:
    return BASE_SETTINGS


@pytest.fixture(scope="session")
def zookeeper(braidlog_zookeeper: ZooKeeper) -> ZooKeeper:
    return braidlog_zookeeper


@pytest.fixture(scope="session")
def new_connect(zookeeper: ZooKeeper) -> Callable[[], str]:
    """A fresh `zookeeper.connect`."""
    return lambda: f"{zookeeper.connect}/cluster{next(_chroots)}"


def _makes_a_topic(cluster: Cluster) -> bool:
    try:
        confluent.create_topic(cluster.bootstrap_servers, f"probe-{next(_probes)}")
    except KafkaException:
        return False
    return True


@pytest.fixture(scope="module")
def cluster(braidlog_cluster: Cluster) -> Cluster:
    """Three brokers, shared by all tests: each leaves them running.

    Another test may have paused ZooKeeper just before, which brokers do not show: they answer from what they know. One
    that makes a topic has a session again.
    """
    eventually(lambda: _makes_a_topic(braidlog_cluster), 30)
    agreed_view(braidlog_cluster.brokers, lambda view: len(view.brokers) == 3 and view.controller >= 0, within_s=30)
    return braidlog_cluster
