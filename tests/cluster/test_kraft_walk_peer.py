"""Kafka 3.9 without ZooKeeper becomes braidlog on its own data directories, and goes back: one node, and three.

docs/MIGRATING.md, "From a KRaft cluster", has the same steps.
"""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import NewTopic
from tools.peers.kafka import start_kafka

from braidlog import Admin
from braidlog.client.admin.configs import ConfigResource, ConfigSource
from braidlog.client.admin.quotas import QuotaEntity
from braidlog.core.ids import id_text
from braidlog.local_cluster.zookeeper import ZooKeeper
from support import confluent
from support.broker import start_braidlog
from support.eventually import eventually
from support.kafka_cluster import NODES, SMALL_JVM, start_kafka_cluster
from support.ports import lasting_port
from support.replica_logs import differing_replicas
from support.samples import CODECS, Sample, odd_samples, plain_samples

pytestmark = [
    pytest.mark.peer,
    pytest.mark.long,
    pytest.mark.never_repeated,
    pytest.mark.usefixtures("apache_kafka"),
    pytest.mark.timeout(900),
]

CONFIGS: Final[dict[str, dict[str, str]]] = {
    **{f"codec-{codec}": {} for codec in CODECS},
    "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.9"},
    "short": {"retention.ms": "1234567890", "segment.bytes": "20000"},
    "transactions": {"max.message.bytes": "500000"},
}
PARTITIONS: Final = 3
GROUP: Final = "readers"
COMMITTED: Final = 77
ID: Final = "an id"
QUOTA: Final = QuotaEntity(user="alice", client_id="app/1")
# The epochs of our coordinators are ahead, too: Kafka's would be refused by what partitions know of producers.
FORGETTING: Final = {"producer.id.expiration.ms": "1000"}
# Soon enough for all to be in sync on a machine that is busy.
WHOLE_WITHIN_S: Final = 120.0


class Stored(NamedTuple):
    offset: int
    sample: Sample


class Seen(NamedTuple):
    """What is to survive each step."""

    records: dict[str, list[Stored]]
    topic_ids: dict[str, str]
    configs: dict[str, dict[str, str | None]]
    committed: int
    quota: Mapping[str, float]
    cluster_wide: str | None


def fill(bootstrap: str, replicas: int) -> None:
    client = confluent.admin(bootstrap)
    new = [NewTopic(topic, PARTITIONS, replicas, config=config) for topic, config in CONFIGS.items()]
    for created in client.create_topics(new).values():
        created.result(60)
    for topic in CONFIGS:
        codec = topic.removeprefix("codec-") if topic.startswith("codec-") else "none"
        sender = confluent.producer(bootstrap, compression_type=codec, enable_idempotence=True, batch_num_messages=20)
        for partition in range(PARTITIONS):
            samples = (
                plain_samples(200) if topic in ("compacted", "transactions") else odd_samples() + plain_samples(300)
            )
            confluent.send(sender, topic, samples, partition)
    transact(bootstrap)
    commit(bootstrap)
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.alter_client_quotas({QUOTA: {"producer_byte_rate": 1e7}}).raise_for_errors()
        admin.alter_configs({ConfigResource.all_brokers(): {"log.cleaner.backoff.ms": "600000"}}).raise_for_errors()


def commit(bootstrap: str) -> None:
    with confluent.assigned(bootstrap, "short", group_id=GROUP) as consumer:

        def committed() -> bool:
            try:
                consumer.commit(offsets=[ConfluentPartition("short", 1, COMMITTED)], asynchronous=False)
            except KafkaException as refusal:
                # Kafka makes the topic while it sends the first ones away.
                if refusal.args[0].code() not in (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS):
                    raise
                return False
            return True

        eventually(committed, WHOLE_WITHIN_S)


def transact(bootstrap: str) -> None:
    sender = confluent.producer(bootstrap, transactional_id=ID)
    sender.init_transactions(60)
    for end in (sender.commit_transaction, sender.abort_transaction):
        sender.begin_transaction()
        confluent.send(sender, "transactions", plain_samples(5))
        end(60)


def look(bootstrap: str) -> Seen:
    records: dict[str, list[Stored]] = {}
    for topic in CONFIGS:
        for partition in range(PARTITIONS):
            messages = confluent.read_all(bootstrap, topic, partition, isolation_level="read_committed")
            samples = confluent.as_samples(messages)
            records[f"{topic}-{partition}"] = [
                Stored(message.offset(), sample) for message, sample in zip(messages, samples, strict=True)
            ]
    with confluent.assigned(bootstrap, "short", group_id=GROUP) as consumer:
        (committed,) = consumer.committed([ConfluentPartition("short", 1)], timeout=60)
    with Admin(bootstrap_servers=bootstrap) as admin:
        described = admin.describe_topics(list(CONFIGS))
        resources = [ConfigResource.topic(topic) for topic in CONFIGS]
        configs = {
            resource.name: {
                name: entry.value for name, entry in entries.items() if entry.source == ConfigSource.DYNAMIC_TOPIC
            }
            for resource, entries in admin.describe_configs(resources).items()
        }
        everywhere = admin.describe_configs([ConfigResource.all_brokers()])[ConfigResource.all_brokers()]
        return Seen(
            records,
            {each.name: id_text(each.topic_id or b"") for each in described.values()},
            configs,
            committed.offset,
            admin.describe_client_quotas()[QUOTA],
            everywhere["log.cleaner.backoff.ms"].value,
        )


def go_on(bootstrap: str) -> None:
    """Each kind of writer, and the transactional id."""
    for topic in ("short", "compacted"):
        for partition in range(PARTITIONS):
            confluent.send(confluent.producer(bootstrap, enable_idempotence=True), topic, plain_samples(20), partition)
    transact(bootstrap)


def in_sync(bootstrap: str, replicas: int) -> bool:
    topics = confluent.admin(bootstrap).list_topics(timeout=30).topics
    return all(len(each.isrs) == replicas for topic in topics.values() for each in topic.partitions.values())


def command(*words: str) -> str:
    done = subprocess.run([sys.executable, "-m", "braidlog", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def digests(directories: Sequence[Path]) -> dict[str, str]:
    """Of what nobody writes to in the walk."""
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for directory in directories
        for path in sorted(directory.glob("codec-*/*.log"))
    }


def forget_epochs(directories: Sequence[Path]) -> None:
    """The epochs of our leaders are ahead of those that Kafka's controllers know."""
    for directory in directories:
        for path in directory.glob("*/leader-epoch-checkpoint"):
            path.unlink()


def test_one_node(tmp_path: Path) -> None:
    data, dump = tmp_path / "data", tmp_path / "kafka.jsonl"
    data.mkdir()
    port = lasting_port()
    with start_kafka(data, port, jvm=SMALL_JVM) as kafka:
        fill(kafka.bootstrap, 1)
        before = look(kafka.bootstrap)
        command("cluster", "dump", str(dump), "--bootstrap", kafka.bootstrap)
    files = digests([data])
    command("cluster", "restore", str(dump), "--data", str(data))
    with start_braidlog(data, {"broker.id": "1"}, port=port) as ours:
        assert look(ours.bootstrap) == before
        go_on(ours.bootstrap)
        grown = look(ours.bootstrap)
        assert ours.stop() == 0
    assert digests([data]) == files
    forget_epochs([data])
    with start_kafka(data, port, FORGETTING, jvm=SMALL_JVM) as kafka:
        assert look(kafka.bootstrap) == grown
        go_on(kafka.bootstrap)


@contextmanager
def ours_on(directories: Mapping[int, Path], connect: str) -> Iterator[str]:
    """A broker on each; stopped as an operator would."""
    settings = {
        "zookeeper.connect": connect,
        "default.replication.factor": "3",
        "min.insync.replicas": "2",
        "offsets.topic.replication.factor": "3",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
    }
    with ExitStack() as stack:
        brokers = [
            stack.enter_context(start_braidlog(directory, {**settings, "broker.id": str(node)}))
            for node, directory in directories.items()
        ]
        yield ",".join(broker.bootstrap for broker in brokers)
        for broker in brokers:
            assert broker.stop() == 0


def test_three_nodes(zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path: Path) -> None:
    dump, connect = tmp_path / "kafka.jsonl", new_connect()
    with start_kafka_cluster() as kafka:
        fill(kafka.bootstrap, 3)
        eventually(lambda: in_sync(kafka.bootstrap, 3), WHOLE_WITHIN_S)
        before = look(kafka.bootstrap)
        command("cluster", "dump", str(dump), "--bootstrap", kafka.bootstrap)
        directories = {node: kafka.brokers[node].data_dir for node in NODES}
        stop(kafka)
        files = digests(list(directories.values()))
        command("cluster", "restore", str(dump), "--zookeeper", connect)

        with ours_on(directories, connect) as bootstrap:
            eventually(lambda: in_sync(bootstrap, 3), WHOLE_WITHIN_S)
            assert look(bootstrap) == before
            go_on(bootstrap)
            grown = look(bootstrap)
            eventually(lambda: in_sync(bootstrap, 3), WHOLE_WITHIN_S)
        assert digests(list(directories.values())) == files
        assert differing(directories) == []

        forget_epochs(list(directories.values()))
        kafka.configure(FORGETTING)
        kafka.begin()
        eventually(lambda: in_sync(kafka.bootstrap, 3), WHOLE_WITHIN_S)
        assert look(kafka.bootstrap) == grown
        go_on(kafka.bootstrap)
        eventually(lambda: in_sync(kafka.bootstrap, 3), WHOLE_WITHIN_S)
        stop(kafka)
        assert differing(directories) == []


def stop(kafka: Any) -> None:
    """All at once: the last alone would find no majority of controllers to say goodbye to."""
    for broker in kafka.brokers.values():
        broker.process.signal(signal.SIGTERM)
    for broker in kafka.brokers.values():
        broker.process.wait(WHOLE_WITHIN_S)


def differing(directories: Mapping[int, Path]) -> list[str]:
    counts = {f"{topic}-{number}": 3 for topic in CONFIGS for number in range(PARTITIONS)}
    return differing_replicas(directories, counts)
