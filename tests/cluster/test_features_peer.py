"""Features where Apache Kafka began the ensemble: they stay off beside it, keep it out once on, and let it back in."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import NewTopic
from tools.peers.kafka import VERSION, VERSION_2_8, VERSION_3_4, run_tool
from tools.peers.process import ProcessFailed

from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.wire.generated.api_keys import ApiKey
from braidlog.wire.generated.api_versions import ApiVersionsRequest, ApiVersionsResponse
from support import confluent
from support.broker import BRAIDLOG, KAFKA
from support.cluster import start_cluster
from support.eventually import eventually
from support.mixed_cluster import KAFKA_ID, MixedCluster, read_node, start_mixed_cluster, zookeeper_client
from support.mixed_replication import REPLICATED_SETTINGS
from support.raw import ask

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka"), pytest.mark.timeout(900)]

NEWER = {"group.version": 1, "transaction.version": 2}
NONE = {"features": {}, "version": 2, "status": 1}
# A broker that ends, and what it says of it.
KEPT_OUT = re.compile(r"ended with.*FeatureCacheUpdateException.*group\.version", re.DOTALL)
NEWER_GROUP_PROTOCOL = {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}


@pytest.fixture(scope="module")
def cluster(
    apache_kafka: object,
    zookeeper: ZooKeeper,
    new_connect: Callable[[], str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[MixedCluster]:
    place = tmp_path_factory.mktemp("features")
    with start_mixed_cluster(zookeeper, place, new_connect(), REPLICATED_SETTINGS) as running:
        yield running


def features(cluster: MixedCluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "braidlog", "features", *words, "--output", "json"]
    bootstrap = ",".join(broker.bootstrap_servers for broker in cluster.ours)
    return subprocess.run([*command, "--bootstrap", bootstrap], capture_output=True, text=True, timeout=180)


def finalized(cluster: MixedCluster) -> dict[str, int]:
    described = features(cluster, "describe")
    assert described.returncode == 0, described.stderr
    return {row["feature"]: row["finalized"] for row in json.loads(described.stdout)}


def stored(cluster: MixedCluster) -> object:
    with zookeeper_client(cluster.connect) as client:
        return read_node(client, "/feature").data


def advertised(port: int) -> set[int]:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    answer = ask(port, "ApiVersions", 3, request)
    assert isinstance(answer, ApiVersionsResponse)
    return {each.api_key for each in answer.api_keys}


def consumed(cluster: MixedCluster, topic: str, group: str, count: int, **config: str) -> list[bytes]:
    """Read by a group, and committed."""
    consumer = ConfluentConsumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            **{key.replace("_", "."): value for key, value in config.items()},
        }
    )
    consumer.subscribe([topic])
    found: list[bytes] = []
    errors: list[str] = []

    def enough() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
        elif message is not None:
            errors.append(str(message.error()))
        return len(found) >= count

    try:
        eventually(enough, 90)
    except AssertionError:
        raise AssertionError(f"{len(found)} of {count} records, {errors}\n{cluster.logs()}") from None
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_beside_kafka_they_stay_off(cluster: MixedCluster) -> None:
    cluster.hand_over_to(BRAIDLOG, lambda broker: broker.stop())
    for broker in cluster.ours:
        assert advertised(broker.port).isdisjoint(NEWER_GROUP_PROTOCOL)
    assert finalized(cluster) == dict.fromkeys(NEWER, 0)
    for words in (("upgrade",), ("upgrade", "--dry-run"), ("upgrade", "--feature", "group.version=1")):
        refused = features(cluster, *words)
        assert refused.returncode == 1
        assert f"brokers {KAFKA_ID} are not braidlog's" in refused.stderr
    # What is off already may be switched off.
    assert features(cluster, "downgrade").returncode == 0
    with zookeeper_client(cluster.connect) as client:
        assert read_node(client, "/feature").data == NONE
        assert client.get("/feature")[1].version == 0


def test_kafkas_controller_refuses_them(cluster: MixedCluster) -> None:
    cluster.hand_over_to(KAFKA, lambda broker: broker.stop())
    refused = features(cluster, "upgrade")
    assert refused.returncode == 1
    assert "not supported" in refused.stderr
    assert stored(cluster) == NONE


def test_once_on_they_keep_kafka_out_and_once_off_let_it_in(cluster: MixedCluster) -> None:
    topic, group = "through-both", "over both protocols"
    cluster.hand_over_to(BRAIDLOG, lambda broker: broker.stop())
    client = confluent.admin(cluster.bootstrap_servers)
    client.create_topics([NewTopic(topic, 2, replication_factor=3)])[topic].result(60)
    cluster.agreed(lambda view: min(view.leaders.get(topic, (-1,))) >= 0)
    producer = confluent.producer(cluster.bootstrap_servers)
    values = [str(number).encode() for number in range(10)]
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(60) == 0
    # While all brokers are there, so that the internal topics have a replica on each.
    assert sorted(consumed(cluster, topic, "another group", 10)) == sorted(values)
    transactional = confluent.producer(cluster.bootstrap_servers, transactional_id="over both")
    transactional.init_transactions(60)
    cluster.kafka.stop()
    cluster.agreed()
    # Its last broker has left.
    done = features(cluster, "upgrade")
    assert done.returncode == 0, done.stderr
    assert stored(cluster) == {"features": {name: {"max_version_level": NEWER[name]} for name in NEWER}} | {
        "version": 2,
        "status": 1,
    }
    for broker in cluster.ours:
        eventually(lambda port=broker.port: advertised(port) >= NEWER_GROUP_PROTOCOL, 30)  # type: ignore[misc]
    assert sorted(consumed(cluster, topic, group, 10, group_protocol="consumer")) == sorted(values)
    transactional.begin_transaction()
    transactional.produce(topic, b"in a transaction", partition=0)
    transactional.commit_transaction(60)
    with pytest.raises(ProcessFailed, match=KEPT_OUT):
        cluster.kafka.start()
    # And back.
    done = features(cluster, "downgrade")
    assert done.returncode == 0, done.stderr
    assert stored(cluster) == NONE
    cluster.kafka.start()
    cluster.agreed()
    for broker in cluster.ours:
        eventually(lambda port=broker.port: advertised(port).isdisjoint(NEWER_GROUP_PROTOCOL), 30)  # type: ignore[misc]
    # Kafka alone has to read what was written meanwhile: the group's offsets, and the transactional id.
    whole = {0, 1, KAFKA_ID}
    eventually(lambda: in_sync(cluster, "__consumer_offsets") == in_sync(cluster, "__transaction_state") == whole, 90)
    for broker in cluster.ours:
        broker.stop()
        cluster.agreed()
    reader = ConfluentConsumer({"bootstrap.servers": cluster.kafka.bootstrap_servers, "group.id": group})
    at = [ConfluentPartition(topic, partition) for partition in range(2)]
    committed = {each.partition: each.offset for each in reader.committed(at, 60)}
    reader.close()
    assert committed == {0: 5, 1: 5}
    for broker in cluster.ours:
        broker.start()
    cluster.agreed()
    assert consumed(cluster, topic, group, 1) == [b"in a transaction"]
    transactional.begin_transaction()
    transactional.produce(topic, b"in another", partition=1)
    transactional.commit_transaction(60)
    assert consumed(cluster, topic, group, 1) == [b"in another"]


def in_sync(cluster: MixedCluster, topic: str) -> set[int]:
    """Brokers that are in sync for every partition."""
    metadata = confluent.admin(cluster.bootstrap_servers).list_topics(topic, timeout=30).topics[topic]
    return set.intersection(*(set(each.isrs) for each in metadata.partitions.values()))


def test_kafkas_own_tool(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path, cluster: MixedCluster
) -> None:
    def kafka_features(bootstrap: str, *words: str) -> str:
        done = run_tool("kafka-features", ["--bootstrap-server", bootstrap, *words])
        return done.stdout + done.stderr

    ours = cluster.ours[0].bootstrap_servers
    described = "group.version\tSupportedMinVersion: 0\tSupportedMaxVersion: 1\tFinalizedVersionLevel: 0"
    # It asks any broker of the cluster; Kafka's has no features to tell of.
    eventually(lambda: described in kafka_features(ours, "describe"), 120.0)
    cluster.hand_over_to(BRAIDLOG, lambda broker: broker.stop())
    assert f"brokers {KAFKA_ID} are not braidlog's" in kafka_features(ours, "upgrade", "--feature", "group.version=1")
    with start_cluster(zookeeper, tmp_path, 1, {"zookeeper.connect": new_connect()}) as alone:
        at = alone.bootstrap_servers
        assert "FinalizedVersionLevel: 1" in kafka_features(at, "describe")
        assert "can be downgraded to 0" in kafka_features(at, "downgrade", "--feature", "group.version=0", "--dry-run")
        assert "was downgraded to 0" in kafka_features(at, "downgrade", "--feature", "group.version=0")
        assert "was upgraded to 1" in kafka_features(at, "upgrade", "--feature", "group.version=1")


@pytest.mark.parametrize(
    "version",
    [VERSION, pytest.param(VERSION_3_4, marks=pytest.mark.long), pytest.param(VERSION_2_8, marks=pytest.mark.long)],
)
def test_a_cluster_that_is_ours_lets_kafka_in_after_a_downgrade(
    version: str,
    kafka_libs_of: Callable[[str], Path],
    zookeeper: ZooKeeper,
    new_connect: Callable[[], str],
    tmp_path: Path,
) -> None:
    # Of `/feature` Kafka 2.8 reads version 1 alone, which ours write where the setting says that it may be there.
    is_2_8 = version == VERSION_2_8
    settings = {"inter.broker.protocol.version": "2.8"} if is_2_8 else {}
    cluster = MixedCluster(zookeeper, tmp_path, new_connect(), settings, kafka_libs_of(version))
    try:
        for broker in cluster.ours:
            broker.start()
        assert finalized(cluster) == NEWER
        with pytest.raises(ProcessFailed, match=KEPT_OUT):
            cluster.kafka.start()
        assert features(cluster, "downgrade").returncode == 0
        cluster.kafka.start()
        # It serves as the controller, too, and leaves the features as they are.
        cluster.hand_over_to(KAFKA, lambda broker: broker.stop())
        assert stored(cluster) == {**NONE, "version": 1 if is_2_8 else 2}
        confluent.create_topic(cluster.bootstrap_servers, "of-both", 3)
        cluster.agreed(lambda view: set(view.leaders.get("of-both", ())) == {0, 1, KAFKA_ID})
    finally:
        cluster.end()
