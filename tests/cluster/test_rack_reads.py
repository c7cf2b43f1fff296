"""Consumers that name their rack read from the replica there, and no further than is committed (KIP-392)."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator
from typing import Final
from urllib.request import urlopen

import pytest
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import NewTopic
from tools.peers.kafka import run_tool

from braidlog import Consumer
from braidlog.core.types import TopicPartition
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.testing import Cluster, ClusterBroker
from support import confluent
from support.cluster import start_cluster
from support.eventually import eventually
from support.kafka_cluster import start_kafka_cluster

SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
VALUES: Final = [f"record {number}".encode() for number in range(20)]
READ_WITHIN_S: Final = 60.0
_BYTES_OUT: Final = "kafka_server_brokertopicmetrics_bytesout_total"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def racks(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Three brokers, each in a rack of its own."""
    settings = {
        "zookeeper.connect": new_connect(),
        "replica.selector.class": SELECTOR,
        "braidlog.http.listen": "127.0.0.1:0",
        # A broker that is paused for a moment is not taken for a dead one.
        "zookeeper.session.timeout.ms": "30000",
    }
    cluster = start_cluster(zookeeper, tmp_path_factory.mktemp("racks"), settings=settings)
    for broker in cluster.brokers:
        broker.settings["broker.rack"] = f"rack-{broker.id}"
    with cluster:
        yield cluster


def written(bootstrap: str, replicas: list[int]) -> str:
    """A topic whose first replica leads, with records that all replicas have."""
    topic = f"racks-{next(_numbers)}"
    admin = confluent.admin(bootstrap)
    admin.create_topics([NewTopic(topic, 1, replica_assignment=[replicas])])[topic].result(60)
    producer = confluent.producer(bootstrap, acks="all")
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0
    return topic


@pytest.fixture
def topic(racks: Cluster) -> str:
    """Led by broker 0, followed by 1 and 2."""
    return written(racks.bootstrap_servers, [0, 1, 2])


def bytes_out(broker: ClusterBroker, topic: str) -> float:
    """Of records that consumers have fetched from this broker."""
    with urlopen(f"http://{broker.http_address}/metrics", timeout=30) as page:
        text = page.read().decode()
    found = re.findall(rf'^{_BYTES_OUT}{{topic="{topic}"}} (\S+)$', text, re.MULTILINE)
    return sum(map(float, found))


def read_by_confluent(bootstrap: str, topic: str, rack: str) -> tuple[list[bytes], int]:
    """All records, and the broker that librdkafka says it fetches them from."""
    sources: list[int] = []
    found: list[bytes] = []

    def told(text: str) -> None:
        known = json.loads(text)["topics"].get(topic, {}).get("partitions", {}).get("0")
        if known is not None:
            sources.append(known["broker"])

    settings = {"client_rack": rack, "statistics_interval_ms": 50, "stats_cb": told}
    with confluent.assigned(bootstrap, topic, **settings) as consumer:
        found = [message.value() or b"" for message in confluent.read(consumer, len(VALUES))]
        before = len(sources)
        # As of now: it may have asked the leader first.
        eventually(lambda: consumer.poll(0.1) is None and len(sources) > before + 1, READ_WITHIN_S)
    return found, sources[-1]


def read_by_ours(bootstrap: str, topic: str, rack: str) -> list[bytes]:
    found: list[bytes] = []
    with Consumer(bootstrap_servers=bootstrap, client_rack=rack, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])

        def all_read() -> bool:
            found.extend(record.value for record in consumer.poll(0.5))
            return len(found) >= len(VALUES)

        eventually(all_read, READ_WITHIN_S)
    return found


def test_confluent_reads_from_the_follower_in_its_rack(racks: Cluster, topic: str) -> None:
    leader, near, other = racks.brokers
    assert read_by_confluent(racks.bootstrap_servers, topic, "rack-1") == (VALUES, near.id)
    assert bytes_out(near, topic) > 0
    assert (bytes_out(leader, topic), bytes_out(other, topic)) == (0, 0)


def test_our_consumer_reads_from_the_follower_in_its_rack(racks: Cluster, topic: str) -> None:
    leader, other, near = racks.brokers
    assert read_by_ours(racks.bootstrap_servers, topic, "rack-2") == VALUES
    assert bytes_out(near, topic) > 0
    assert (bytes_out(leader, topic), bytes_out(other, topic)) == (0, 0)


@pytest.mark.parametrize("rack", ["", "rack-0", "elsewhere"])
def test_without_a_replica_in_its_rack_the_leader_is_read(racks: Cluster, topic: str, rack: str) -> None:
    leader, *followers = racks.brokers
    assert read_by_confluent(racks.bootstrap_servers, topic, rack) == (VALUES, leader.id)
    assert bytes_out(leader, topic) > 0
    assert [bytes_out(broker, topic) for broker in followers] == [0, 0]


def test_a_follower_shows_no_more_than_is_committed(racks: Cluster, topic: str) -> None:
    """It has the record, but another replica in sync does not."""
    _, near, stuck = racks.brokers
    bootstrap = racks.bootstrap_servers
    careless = confluent.producer(bootstrap, acks=1, retries=0)
    with confluent.assigned(bootstrap, topic, client_rack="rack-1", enable_partition_eof=False) as consumer:
        assert [message.value() for message in confluent.read(consumer, len(VALUES))] == VALUES
        stuck.pause()
        try:
            careless.produce(topic, b"uncommitted", partition=0)
            assert careless.flush(30) == 0
            log = near.data_dir / f"{topic}-0" / f"{0:020}.log"
            eventually(lambda: b"uncommitted" in log.read_bytes(), 10)
            assert consumer.poll(1.0) is None
        finally:
            stuck.resume()
        (message,) = confluent.read(consumer, 1)
        assert message.value() == b"uncommitted"
        assert consumer.position([ConfluentPartition(topic, 0)])[0].offset == len(VALUES) + 1


@pytest.mark.peer
@pytest.mark.usefixtures("apache_kafka")
def test_the_java_consumer_reads_from_the_follower_in_its_rack(racks: Cluster, topic: str) -> None:
    leader, near, other = racks.brokers
    words = [
        "--bootstrap-server",
        racks.bootstrap_servers,
        "--topic",
        topic,
        "--partition",
        "0",
        "--offset",
        "earliest",
    ]
    words += ["--max-messages", str(len(VALUES)), "--consumer-property", "client.rack=rack-1"]
    done = run_tool("kafka-console-consumer", words)
    assert done.stdout.encode().splitlines() == VALUES, done.stderr
    assert bytes_out(near, topic) > 0
    assert (bytes_out(leader, topic), bytes_out(other, topic)) == (0, 0)


@pytest.mark.peer
@pytest.mark.usefixtures("apache_kafka")
def test_kafka_sends_confluent_to_the_same_replicas() -> None:
    with start_kafka_cluster() as kafka:
        topic = written(kafka.bootstrap, [1, 2, 3])
        for rack, source in (("rack-2", 2), ("rack-3", 3), ("", 1), ("rack-1", 1), ("elsewhere", 1)):
            assert read_by_confluent(kafka.bootstrap, topic, rack) == (VALUES, source)
