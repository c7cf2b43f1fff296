"""From an earlier build to this one and back, broker by broker, while clients of every kind write and read.

The earlier build is the commit before this one, or the checkout that BRAIDLOG_UPGRADE_FROM names.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from braidlog import __version__
from braidlog.local_cluster.broker_process import BrokerProcess
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing import ClusterBroker
from support import confluent
from support.client_history import GaveUp
from support.cluster import start_cluster
from support.previous_build import VERSION, previous_source
from support.replicated_traffic import KINDS, Traffic
from support.replication_matrix import SETTINGS, ReplicatedCluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]


def version_of(broker: ClusterBroker) -> str:
    """As the broker itself says."""
    with urllib.request.urlopen(f"http://{broker.http_address}/metrics", timeout=30) as answer:
        info = next(line for line in answer.read().decode().splitlines() if line.startswith("braidlog_info{"))
    return next(word for word in (VERSION, __version__) if f'version="{word}"' in info)


def test_broker_by_broker_and_back(zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path) -> None:
    earlier = previous_source(tmp_path)
    settings = {**SETTINGS, "zookeeper.connect": new_connect(), "braidlog.http.listen": "127.0.0.1:0"}
    cluster = start_cluster(zookeeper, tmp_path, settings=settings)
    for broker in cluster.brokers:
        broker.run_from(earlier)
    with cluster:
        replicated = ReplicatedCluster.of(cluster)
        assert [version_of(broker) for broker in cluster.brokers] == [VERSION] * 3
        topics = {kind.name: kind for kind in KINDS.values()}
        replicated.create(topics, [(0, 1, 2), (1, 2, 0)])
        traffic = Traffic(replicated.bootstrap, topics)
        with traffic.running():
            for source, version in ((None, __version__), (earlier, VERSION)):
                for broker in cluster.brokers:
                    broker.stop()
                    broker.run_from(source)
                    broker.start()
                    assert version_of(broker) == version
                    replicated.await_whole(traffic.topics)
                    traffic.await_progress()
                    # Builds of both kinds agree on something new.
                    confluent.create_topic(cluster.bootstrap_servers, f"made-beside-{version}-{broker.id}")
        verdict = traffic.verdict()
    setbacks = [text for writer in traffic.writers for text in writer.setbacks]
    given_up = [each for each in traffic.history.operations if isinstance(each, GaveUp)] if verdict.gave_up else []
    assert (traffic.problems, verdict.findings, setbacks, given_up) == ([], (), [], [])
    print(verdict._replace(findings=()))


def test_a_single_broker_and_back(tmp_path: Path) -> None:
    """Its embedded store and its logs are read by both; what either wrote is there in the end."""
    earlier = previous_source(tmp_path)
    process = BrokerProcess(tmp_path / "broker.log")
    settings = {
        "log.dirs": str(tmp_path / "data"),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "braidlog.http.listen": "",
        "offsets.topic.num.partitions": "1",
    }
    written = []
    for life, source in enumerate((earlier, None, earlier, None)):
        process.prefix = () if source is None else ("env", f"PYTHONPATH={source}")
        bootstrap = f"127.0.0.1:{process.start(settings)}"
        confluent.create_topic(bootstrap, f"topic-{life}")
        written.append(f"topic-{life}")
        producer = confluent.producer(bootstrap)
        for topic in written:
            producer.produce(topic, f"life {life}")
        assert producer.flush(30) == 0
        process.stop()
    bootstrap = f"127.0.0.1:{process.start(settings)}"
    try:
        for first, topic in enumerate(written):
            values = [bytes(each.value() or b"") for each in confluent.read_all(bootstrap, topic)]
            assert values == [b"life %d" % life for life in range(first, 4)]
    finally:
        process.stop()
