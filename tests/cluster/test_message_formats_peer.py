"""Kafka 3.9 and ours with inter.broker.protocol.version=2.8 and log.message.format.version=0.10.2 in one cluster.

Each leads, follows, and leads alone for a while; clients of three ages write and read. Both hold the same bytes then,
in the format of the topic.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import NewTopic
from tools.peers.kafka import run_tool

from braidlog.local_cluster.zookeeper import ZooKeeper
from support import confluent
from support.eventually import eventually
from support.mixed_cluster import KAFKA_ID, Member, MixedCluster
from support.mixed_replication import REPLICATED_SETTINGS, WHOLE_WITHIN_S
from support.replica_logs import differing_replicas
from support.samples import Sample, plain_samples

pytestmark = [
    pytest.mark.peer,
    pytest.mark.never_repeated,
    pytest.mark.usefixtures("apache_kafka"),
    pytest.mark.timeout(900),
]

FORMATS: Final = {"inter.broker.protocol.version": "2.8", "log.message.format.version": "0.10.2"}
# What topics say of their format, and as what the dump tool finds it; one says nothing.
TOPICS: Final[dict[str, tuple[dict[str, str], int]]] = {
    "plain": ({}, 1),
    "older": ({"message.format.version": "0.9.0"}, 0),
    "compressed": ({"compression.type": "gzip"}, 1),
    "newer": ({"message.format.version": "0.11.0"}, 2),
}
ON_BOTH: Final = [[0, KAFKA_ID], [KAFKA_ID, 0]]
# Of librdkafka: what it sends and asks for as if it were of that time.
AGES: Final[dict[str, dict[str, Any]]] = {
    "today": {},
    "0.10": {"api_version_request": False, "broker_version_fallback": "0.10.0"},
    "0.9": {"api_version_request": False, "broker_version_fallback": "0.9.0"},
}
GROUP: Final = "readers"
# What a commit is answered while its coordinator moves.
MOVING: Final = (
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
)


@pytest.fixture(scope="module")
def cluster(
    zookeeper: ZooKeeper, new_connect: Callable[[], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedCluster]:
    settings = {
        **REPLICATED_SETTINGS,
        **dict.fromkeys(
            (
                "default.replication.factor",
                "offsets.topic.replication.factor",
                "transaction.state.log.replication.factor",
            ),
            "2",
        ),
        "min.insync.replicas": "1",
        "transaction.state.log.min.isr": "1",
        "offsets.topic.num.partitions": "4",
        **FORMATS,
    }
    cluster = MixedCluster(zookeeper, tmp_path_factory.mktemp("formats"), new_connect(), settings)
    # One of ours is enough.
    del cluster.ours[1:]
    try:
        cluster.kafka.start()
        cluster.ours[0].start()
        cluster.agreed()
        yield cluster
    finally:
        cluster.end()


class Writing:
    """What was written to each partition, and what the group has committed."""

    def __init__(self, cluster: MixedCluster) -> None:
        self.cluster = cluster
        self.written: dict[tuple[str, int], list[Sample]] = {
            (topic, partition): [] for topic in TOPICS for partition in range(2)
        }
        self._number = 0
        self._committed = 0

    def write(self) -> None:
        """By each client, plain and compressed, to every partition, whoever leads it."""
        for age in AGES.values():
            for codec in ("none", "gzip"):
                for (topic, partition), written in self.written.items():
                    self._number += 1
                    samples = [
                        Sample(sample.key, b"%d " % self._number + (sample.value or b""), (), sample.timestamp_ms)
                        for sample in plain_samples(4)
                    ]
                    sender = confluent.producer(self.cluster.bootstrap_servers, compression_type=codec, **age)
                    confluent.send(sender, topic, samples, partition)
                    written += samples

    def commit(self) -> None:
        """Of groups that belong to different partitions of `__consumer_offsets`."""
        self._committed = len(self.written["plain", 0])
        for number in range(8):
            with confluent.assigned(self.cluster.bootstrap_servers, "plain", group_id=f"{GROUP}-{number}") as consumer:
                here = ConfluentPartition("plain", 0, self._committed)

                def committed(consumer: Any = consumer, here: ConfluentPartition = here) -> bool:
                    try:
                        consumer.commit(offsets=[here], asynchronous=False)
                    except KafkaException as refusal:
                        if refusal.args[0].code() not in MOVING:
                            raise
                        return False
                    return True

                eventually(committed, WHOLE_WITHIN_S)

    def check_commits(self) -> None:
        for number in range(8):
            with confluent.assigned(self.cluster.bootstrap_servers, "plain", group_id=f"{GROUP}-{number}") as consumer:
                (found,) = consumer.committed([ConfluentPartition("plain", 0)], timeout=60)
                assert found.offset == self._committed

    def check_records(self) -> None:
        """Every client reads all, but for the times that format 0, or the client's own, has no place for."""
        for name, age in AGES.items():
            for (topic, partition), written in self.written.items():
                messages = confluent.read_all(self.cluster.bootstrap_servers, topic, partition, **age)
                assert [message.offset() for message in messages] == list(range(len(written)))
                found = confluent.as_samples(messages)
                assert [(sample.key, sample.value) for sample in found] == [
                    (sample.key, sample.value) for sample in written
                ], (name, topic)
                if topic != "older" and name != "0.9":
                    kept = [sample.timestamp_ms for sample in found]
                    # Every third batch is of a client without times.
                    assert [a == b.timestamp_ms for a, b in zip(kept, written, strict=True)].count(True) * 3 >= 2 * len(
                        kept
                    )


def in_sync(cluster: MixedCluster) -> bool:
    topics = confluent.admin(cluster.bootstrap_servers).list_topics(timeout=30).topics
    return all(len(each.isrs) == 2 for topic in topics.values() for each in topic.partitions.values())


def leads_alone(cluster: MixedCluster, other: Member, writing: Writing) -> None:
    """While `other` is away; it comes back and makes up for what it has missed."""
    other.stop()
    (alone,) = (broker.id for broker in cluster.brokers if broker is not other)
    cluster.agreed(lambda view: all(view.leaders.get(topic) == (alone, alone) for topic in TOPICS))
    writing.write()
    writing.check_commits()
    writing.commit()
    other.start()
    cluster.agreed()
    eventually(lambda: in_sync(cluster), WHOLE_WITHIN_S)


def test_both_hold_the_same_bytes_in_the_format_of_the_topic(cluster: MixedCluster) -> None:
    client = confluent.admin(cluster.bootstrap_servers)
    new = [NewTopic(topic, 2, replica_assignment=ON_BOTH, config=config) for topic, (config, _) in TOPICS.items()]
    for created in client.create_topics(new).values():
        created.result(60)
    cluster.agreed(lambda view: all(view.leaders.get(topic) == (0, KAFKA_ID) for topic in TOPICS))
    writing = Writing(cluster)
    writing.write()
    writing.commit()
    for other in (cluster.kafka, cluster.ours[0], cluster.kafka):
        leads_alone(cluster, other, writing)
    writing.check_commits()
    writing.check_records()

    wanted = {**{topic: magic for topic, (_, magic) in TOPICS.items()}, "__consumer_offsets": 1}
    counts = {topic: 4 if topic == "__consumer_offsets" else 2 for topic in wanted}
    replicas = {f"{topic}-{number}": 2 for topic, count in counts.items() for number in range(count)}
    assert differing_replicas({broker.id: broker.data_dir for broker in cluster.brokers}, replicas) == []
    for topic, magic in wanted.items():
        theirs, ours = (dumped(broker.data_dir, topic, counts[topic]) for broker in (cluster.kafka, cluster.ours[0]))
        assert ours == theirs
        found = {int(each) for line in theirs for each in re.findall(r"magic: (\d)", line)}
        assert found == {magic}, topic


def dumped(directory: Path, topic: str, partitions: int) -> list[str]:
    """What Kafka's tool says of the segments, without their places."""
    files = [
        str(path) for number in range(partitions) for path in sorted((directory / f"{topic}-{number}").glob("*.log"))
    ]
    done = run_tool("kafka-dump-log", ["--files", ",".join(files)])
    assert done.returncode == 0, done.stderr
    return [line for line in done.stdout.splitlines() if not line.startswith(("Dumping", "Starting"))]


def test_what_has_no_place_in_an_old_format_is_refused_by_either_leader(cluster: MixedCluster) -> None:
    client = confluent.admin(cluster.bootstrap_servers)
    name = "refusing"
    client.create_topics([NewTopic(name, 2, replica_assignment=ON_BOTH)])[name].result(60)
    cluster.agreed(lambda view: view.leaders.get(name) == (0, KAFKA_ID))
    for partition in range(2):
        sender = confluent.producer(cluster.bootstrap_servers, enable_idempotence=True)
        with pytest.raises(KafkaException) as refused:
            confluent.send(sender, name, plain_samples(1), partition)
        assert refused.value.args[0].code() == KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert (
        differing_replicas(
            {broker.id: broker.data_dir for broker in cluster.brokers}, {f"{name}-{number}": 2 for number in range(2)}
        )
        == []
    )
