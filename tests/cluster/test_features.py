"""Features of a cluster of ours, from the command line; beside Apache Kafka they are in test_features_peer.py."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from kazoo.client import KazooClient

from braidlog.testing import Cluster
from support import confluent
from support.eventually import eventually

NEWER = {"group.version": 1, "transaction.version": 2}


def features(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "braidlog", "features", *words, "--bootstrap", cluster.bootstrap_servers]
    return subprocess.run([*command, "--output", "json"], capture_output=True, text=True, timeout=120)


def finalized(cluster: Cluster) -> dict[str, int]:
    described = features(cluster, "describe")
    assert described.returncode == 0, described.stderr
    return {row["feature"]: row["finalized"] for row in json.loads(described.stdout)}


@pytest.fixture
def restored(cluster: Cluster) -> Iterator[Cluster]:
    yield cluster
    assert features(cluster, "upgrade").returncode == 0


def test_down_and_up_again(restored: Cluster) -> None:
    cluster = restored
    assert finalized(cluster) == NEWER
    topic = "features"
    confluent.create_topic(cluster.bootstrap_servers, topic, 3)
    producer = confluent.producer(cluster.bootstrap_servers)
    for number in range(9):
        producer.produce(topic, str(number), partition=number % 3)
    assert producer.flush(60) == 0
    group = "of the newer protocol"
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []

    def read(reader: ConfluentConsumer, count: int) -> bool:
        message = reader.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
        return len(found) >= count

    eventually(lambda: read(consumer, 9), 60)
    consumer.commit(asynchronous=False)
    refused = features(cluster, "downgrade")
    assert refused.returncode == 1
    assert f"group {group} is with members of the newer protocol" in refused.stderr
    assert finalized(cluster) == NEWER
    consumer.close()
    done = features(cluster, "downgrade")
    assert done.returncode == 0, done.stderr
    with_zookeeper = KazooClient(cluster.zookeeper_connect)
    with_zookeeper.start()
    assert with_zookeeper.get("/feature")[0] == b'{"features":{},"version":2,"status":1}'
    with_zookeeper.stop()
    with_zookeeper.close()
    eventually(lambda: finalized(cluster) == {"group.version": 0, "transaction.version": 0}, 30)
    # The same group, over the classic protocol, goes on where the other ended.
    classic = ConfluentConsumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
    )
    classic.subscribe([topic])
    producer.produce(topic, "last", partition=0)
    assert producer.flush(60) == 0
    eventually(lambda: read(classic, 10), 60)
    classic.close()
    assert found[9:] == [b"last"]
    assert features(cluster, "upgrade").returncode == 0
    eventually(lambda: finalized(cluster) == NEWER, 30)
