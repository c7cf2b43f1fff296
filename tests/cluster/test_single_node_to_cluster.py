"""A single broker becomes one of three on ZooKeeper, over the same log directories, and goes back."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from braidlog import Admin, TopicPartition
from braidlog.client.admin.configs import ConfigResource
from braidlog.client.admin.quotas import QuotaEntity
from braidlog.client.admin.scram import ScramMechanism, ScramUpsertion
from braidlog.local_cluster.zookeeper import ZooKeeper
from braidlog.security.acls import Acl, AclOperation, AclResourceType
from braidlog.testing import Broker, Cluster
from support import confluent
from support.cluster import start_cluster
from support.eventually import eventually

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

TOPIC = "orders"
COPY = "orders-copy"
GROUP = "billing"
PARTITIONS = 3
RECORDS = 300
ACL = Acl(AclResourceType.TOPIC, TOPIC, "User:alice", AclOperation.READ)
QUOTA = QuotaEntity(user="alice")
COMMON = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "offsets.topic.num.partitions": "2",
}


def braidlog(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "braidlog", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def send(bootstrap: str, first: int, count: int) -> None:
    producer = confluent.producer(bootstrap, enable_idempotence=True)
    for number in range(first, first + count):
        producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
    assert producer.flush(60) == 0


def numbers(bootstrap: str, topic: str = TOPIC) -> list[int]:
    """In the order of each partition, one partition after the other."""
    return [
        int(message.value() or b"")
        for index in range(PARTITIONS)
        for message in confluent.read_all(bootstrap, topic, index)
    ]


def expected(count: int) -> list[int]:
    return [number for index in range(PARTITIONS) for number in range(index, count, PARTITIONS)]


def facts(bootstrap: str) -> dict[str, Any]:
    """What has to be the same before and after."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        (topic,) = admin.describe_topics([TOPIC]).succeeded.values()
        (config,) = admin.describe_configs([ConfigResource.topic(TOPIC)]).succeeded.values()
        (offsets,) = admin.list_group_offsets([GROUP]).succeeded.values()
        return {
            "cluster id": admin.describe_cluster().cluster_id,
            "topic id": topic.topic_id,
            "retention": config["retention.ms"].value,
            "offsets": {place: each.offset for place, each in offsets.items()},
            "acls": admin.describe_acls(),
            "users": admin.describe_scram_users().succeeded,
            "quotas": admin.describe_client_quotas(),
        }


def move(bootstrap: str, replicas: Sequence[int]) -> None:
    """Every partition, internal ones included, to these brokers."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        places: list[TopicPartition] = []

        def known() -> bool:
            """A broker that has just started may not have been told of all topics yet."""
            topics = admin.describe_topics().succeeded.values()
            places[:] = [TopicPartition(topic.name, each.partition) for topic in topics for each in topic.partitions]
            return {TOPIC, "__consumer_offsets"} <= {topic.name for topic in topics}

        eventually(known, 60)
        admin.alter_partition_reassignments({place: list(replicas) for place in places}).raise_for_errors()

        def done() -> bool:
            topics = admin.describe_topics().succeeded.values()
            found = [each for topic in topics for each in topic.partitions]
            return (
                len(found) == len(places)
                and not admin.list_partition_reassignments()
                and all(set(each.replicas) == set(each.in_sync) == set(replicas) for each in found)
            )

        eventually(done, 120)


def segments(data: Path) -> dict[str, int]:
    """The inode of each file with records: a copy would have another."""
    return {str(path.relative_to(data)): path.stat().st_ino for path in data.glob(f"{TOPIC}-*/*.log")}


def fill(broker: Broker) -> None:
    broker.create_topic(TOPIC, partitions=PARTITIONS, retention_ms=123456789)
    admin = broker.admin()
    admin.alter_scram_users([ScramUpsertion("alice", "of alice", ScramMechanism.SCRAM_SHA_512)]).raise_for_errors()
    admin.create_acls([ACL]).raise_for_errors()
    admin.alter_client_quotas({QUOTA: {"producer_byte_rate": 1e9}}).raise_for_errors()
    send(broker.bootstrap_servers, 0, RECORDS)
    with broker.consumer(TOPIC, group_id=GROUP, enable_auto_commit=False) as consumer:
        seen = 0
        while seen < RECORDS // 2:
            seen += len(consumer.poll(10.0))
        consumer.commit()


def test_topics_data_and_users_stay(zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path) -> None:
    connect = new_connect()
    data, dump = tmp_path / "broker-0", tmp_path / "tree.jsonl"
    with Broker("process", data_dir=data, settings={**COMMON, "broker.id": "0"}) as single:
        fill(single)
        before = facts(single.bootstrap_servers)
    files = segments(data)
    assert before["acls"] == [ACL]
    assert sum(before["offsets"].values()) >= RECORDS // 2

    braidlog("cluster", "dump", str(dump), "--data", str(data), "--include-secrets")
    braidlog("cluster", "restore", str(dump), "--zookeeper", connect)
    settings = {**COMMON, "zookeeper.connect": connect, "min.insync.replicas": "1"}
    cluster = start_cluster(zookeeper, tmp_path, settings=settings)
    first, *others = cluster.brokers
    try:
        first.start()
        assert facts(first.bootstrap_servers) == before
        assert numbers(first.bootstrap_servers) == expected(RECORDS)
        assert segments(data) == files
        send(first.bootstrap_servers, RECORDS, 30)
        for broker in others:
            broker.start()
        move(cluster.bootstrap_servers, [1, 2, 0])
        first.kill()
        _still_there(cluster, before)
        send(cluster.bootstrap_servers, RECORDS + 30, 30)
        first.start()
        move(cluster.bootstrap_servers, [0])
        for broker in cluster.brokers:
            broker.stop()
    finally:
        cluster.close()

    # A topic is exported from the stopped cluster, and comes in under another name.
    archive = str(tmp_path / "archive")
    braidlog("log", "export", TOPIC, archive, "--data", str(data), "--zookeeper", connect)
    braidlog("log", "import", archive, "--data", str(data), "--zookeeper", connect, "--as", COPY)

    # And back: all partitions are on broker 0 alone.
    braidlog("cluster", "dump", str(dump), "--zookeeper", connect, "--include-secrets", "--overwrite")
    braidlog("cluster", "restore", str(dump), "--data", str(data), "--replace")
    with Broker("process", data_dir=data, settings=COMMON) as single:
        assert facts(single.bootstrap_servers) == before
        assert numbers(single.bootstrap_servers) == expected(RECORDS + 60)
        assert numbers(single.bootstrap_servers, COPY) == expected(RECORDS + 60)


def _still_there(cluster: Cluster, before: dict[str, Any]) -> None:
    bootstrap = ",".join(broker.bootstrap_servers for broker in cluster.brokers if broker.is_running)

    def same() -> bool:
        return facts(bootstrap) == before

    eventually(same, 60)
    assert numbers(bootstrap) == expected(RECORDS + 30)
