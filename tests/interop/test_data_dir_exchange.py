"""A data directory that Apache Kafka 3.9 wrote opens here, and one of ours opens there, records identical."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from tools.peers.kafka import (
    KafkaBroker,
    start_kafka,
    start_kafka_with_zookeeper,
    start_zookeeper,
    zookeeper_create,
)

from support import confluent
from support.broker import BRAIDLOG, start_target
from support.eventually import eventually
from support.samples import CODECS, Sample, odd_samples, plain_samples

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("apache_kafka")]

# The node that a directory belongs to is written in it: both brokers run as the same one.
SAME_NODE = {"broker.id": "1", "log.cleaner.backoff.ms": "600000"}


class Stored(NamedTuple):
    offset: int
    sample: Sample


def contents(bootstrap: str, partitions: dict[str, int]) -> dict[str, list[Stored]]:
    """Every record of every partition, by "topic-partition", as a read_committed consumer sees it."""
    found: dict[str, list[Stored]] = {}
    for topic, count in partitions.items():
        for partition in range(count):
            messages = confluent.read_all(bootstrap, topic, partition=partition, isolation_level="read_committed")
            samples = confluent.as_samples(messages)
            found[f"{topic}-{partition}"] = [
                Stored(message.offset(), sample) for message, sample in zip(messages, samples, strict=True)
            ]
    return found


def segments(data_dir: Path) -> dict[str, str]:
    """A digest of every segment of the topics that clients wrote."""
    return {
        str(path.relative_to(data_dir)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(data_dir.glob("*/*.log"))
        if not path.parent.name.startswith("__")
    }


PARTITIONS = {
    **{f"codec-{codec}": 1 for codec in CODECS},
    "segments": 1,
    "several": 3,
    "old-formats": 1,
    "idempotent": 1,
    "trimmed": 1,
    "append-time": 1,
    "empty": 1,
    "dotted.name_and-dashes": 2,
}


def fill(bootstrap: str) -> None:
    """Topics of many kinds, through librdkafka."""
    for topic, count in PARTITIONS.items():
        config = {"segments": {"segment_bytes": "20000", "index_interval_bytes": "200"}}.get(topic, {})
        if topic == "append-time":
            config = {"message_timestamp_type": "LogAppendTime"}
        confluent.create_topic(bootstrap, topic, partitions=count, **config)
    for codec in CODECS:
        sender = confluent.producer(bootstrap, compression_type=codec)
        confluent.send(sender, f"codec-{codec}", odd_samples() + plain_samples(100))
    plain = confluent.producer(bootstrap, batch_num_messages=20)
    confluent.send(plain, "segments", plain_samples(1000))
    for partition in range(3):
        confluent.send(plain, "several", plain_samples(10 * partition), partition=partition)
    confluent.send(plain, "append-time", plain_samples(10))
    confluent.send(plain, "dotted.name_and-dashes", plain_samples(10), partition=1)
    for release in ("0.9.0", "0.10.0"):
        old = confluent.producer(
            bootstrap, api_version_request=False, broker_version_fallback=release, compression_type="gzip"
        )
        confluent.send(old, "old-formats", plain_samples(20))
    confluent.send(confluent.producer(bootstrap, enable_idempotence=True), "idempotent", plain_samples(200))
    confluent.send(plain, "trimmed", plain_samples(100))
    admin = confluent.admin(bootstrap)
    cut = TopicPartition("trimmed", 0, 40)
    admin.delete_records([cut])[cut].result(30)


def transact(bootstrap: str) -> None:
    """One committed and one aborted transaction: control batches and a transaction index."""
    confluent.create_topic(bootstrap, "transactions")
    sender = confluent.producer(bootstrap, transactional_id="exchange")
    sender.init_transactions(60)
    for number, end in enumerate((sender.commit_transaction, sender.abort_transaction, sender.commit_transaction)):
        sender.begin_transaction()
        confluent.send(sender, "transactions", [Sample(b"%d" % number, b"%d" % n) for n in range(5)])
        end(60)


def transact_again(bootstrap: str) -> None:
    sender = confluent.producer(bootstrap, transactional_id="exchange")
    sender.init_transactions(60)
    sender.begin_transaction()
    confluent.send(sender, "transactions", plain_samples(5))
    sender.commit_transaction(60)


def commit_offsets(bootstrap: str, group: str) -> None:
    """Offsets of a group that assigns by itself, with metadata."""
    with confluent.assigned(bootstrap, "segments", group_id=group) as consumer:
        offsets = [
            TopicPartition("segments", 0, 321, metadata="a note"),
            TopicPartition("several", 2, 7),
            TopicPartition("dotted.name_and-dashes", 1, 1),
        ]

        def commit() -> bool:
            try:
                consumer.commit(offsets=offsets, asynchronous=False)
            except KafkaException as refusal:
                # Apache Kafka makes the topic while it sends the first ones away.
                if refusal.args[0].code() not in (
                    KafkaError.NOT_COORDINATOR,
                    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
                ):
                    raise
                return False
            return True

        eventually(commit)


def committed_offsets(bootstrap: str, group: str) -> list[tuple[str, int, int, str]]:
    wanted = [
        TopicPartition("segments", 0),
        TopicPartition("several", 2),
        TopicPartition("dotted.name_and-dashes", 1),
        TopicPartition("empty", 0),
    ]
    with confluent.assigned(bootstrap, "segments", group_id=group) as consumer:
        found = consumer.committed(wanted, timeout=60)
    # librdkafka counts the byte that ends a C string into the metadata that it sends.
    return [(each.topic, each.partition, each.offset, (each.metadata or "").rstrip("\0")) for each in found]


COMMITTED = [
    ("segments", 0, 321, "a note"),
    ("several", 2, 7, ""),
    ("dotted.name_and-dashes", 1, 1, ""),
    ("empty", 0, -1001, ""),
]


def check_watermarks(broker_bootstrap: str, expected: dict[str, tuple[int, int]]) -> None:
    with confluent.assigned(broker_bootstrap, "empty") as consumer:
        for name, ends in expected.items():
            topic, _, partition = name.rpartition("-")
            here = TopicPartition(topic, int(partition))
            assert consumer.get_watermark_offsets(here, timeout=30) == ends, name


def append_more(bootstrap: str) -> None:
    for topic in ("segments", "idempotent", "transactions", "trimmed"):
        confluent.send(confluent.producer(bootstrap, enable_idempotence=True), topic, plain_samples(30))


NO_CLEANING = {"log.cleaner.backoff.ms": "600000"}
StartKafka = Callable[[], AbstractContextManager[KafkaBroker]]


@pytest.fixture(params=["kraft", "zookeeper"])
def start_one(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartKafka]:
    """Starts an Apache Kafka of either kind on the directory `data`; what it knows of topics outlives it."""
    data = tmp_path / "data"
    data.mkdir()
    if request.param == "kraft":
        yield lambda: start_kafka(data, 0, NO_CLEANING)
    else:
        with start_zookeeper(tmp_path / "zookeeper") as zookeeper:
            yield lambda: start_kafka_with_zookeeper(data, zookeeper, 0, NO_CLEANING)


def test_from_kafka_to_us_and_back(target_kind: str, tmp_path: Path, start_one: StartKafka) -> None:
    partitions = {**PARTITIONS, "transactions": 1}
    data = tmp_path / "data"
    with start_one() as kafka:
        fill(kafka.bootstrap)
        transact(kafka.bootstrap)
        commit_offsets(kafka.bootstrap, "theirs")
        written = contents(kafka.bootstrap, partitions)
    assert len(written["transactions-0"]) == 10
    assert written["trimmed-0"][0].offset == 40
    files = segments(data)
    assert sum(name.startswith("segments-0") for name in files) > 2

    with start_target(target_kind, data, SAME_NODE) as ours:
        assert contents(ours.bootstrap, partitions) == written
        check_watermarks(ours.bootstrap, {"trimmed-0": (40, 100), "empty-0": (0, 0), "transactions-0": (0, 18)})
        assert committed_offsets(ours.bootstrap, "theirs") == COMMITTED
        commit_offsets(ours.bootstrap, "ours")
        append_more(ours.bootstrap)
        # The same transactional id goes on where it was: its state came along.
        transact_again(ours.bootstrap)
        grown = contents(ours.bootstrap, partitions)
    for name, digest in files.items():
        after = (data / name).read_bytes()
        if name.startswith("codec-"):
            assert hashlib.sha256(after).hexdigest() == digest, f"{name} was changed by being opened"

    with start_one() as kafka:
        assert contents(kafka.bootstrap, partitions) == grown
        check_watermarks(kafka.bootstrap, {"trimmed-0": (40, 130), "transactions-0": (0, 54)})
        for group in ("theirs", "ours"):
            assert committed_offsets(kafka.bootstrap, group) == COMMITTED
        transact_again(kafka.bootstrap)


def topic_ids(data_dir: Path) -> dict[str, str]:
    """The topic ids in `partition.metadata`, by topic."""
    ids = {}
    for path in sorted(data_dir.glob("*/partition.metadata")):
        fields = dict(line.split(": ", 1) for line in path.read_text().splitlines() if ": " in line)
        ids[path.parent.name.rpartition("-")[0]] = fields["topic_id"]
    return ids


@pytest.mark.parametrize("crashed", [False, True], ids=["stopped", "crashed"])
def test_from_us_to_kafka(target_kind: str, tmp_path: Path, crashed: bool) -> None:
    """Kafka learns topics from ZooKeeper, not from the directory: the test writes there what our broker knew."""
    if target_kind != BRAIDLOG:
        pytest.skip("shows that a directory of ours opens in Kafka")
    data = tmp_path / "data"
    with start_target(target_kind, data, SAME_NODE) as ours:
        fill(ours.bootstrap)
        written = contents(ours.bootstrap, PARTITIONS)
        if crashed:
            ours.kill()
    files = segments(data)
    properties = dict(line.split("=", 1) for line in (data / "meta.properties").read_text().splitlines() if "=" in line)
    # A directory of a ZooKeeper broker names its owner `broker.id`; that of a KRaft one `node.id` (version 1).
    (data / "meta.properties").write_text(f"version=0\nbroker.id=1\ncluster.id={properties['cluster.id']}\n")
    with start_zookeeper(tmp_path / "zookeeper") as zookeeper:
        nodes = {
            "/cluster": "",
            "/cluster/id": f'{{"version":"1","id":"{properties["cluster.id"]}"}}',
            "/brokers": "",
            "/brokers/topics": "",
        }
        ids = topic_ids(data)
        for topic, count in PARTITIONS.items():
            assignment = ",".join(f'"{partition}":[1]' for partition in range(count))
            nodes[f"/brokers/topics/{topic}"] = (
                f'{{"version":3,"topic_id":"{ids[topic]}","partitions":{{{assignment}}},'
                '"adding_replicas":{},"removing_replicas":{}}'
            )
        zookeeper_create(zookeeper, nodes)
        with start_kafka_with_zookeeper(data, zookeeper, 0, NO_CLEANING) as kafka:
            found = contents(kafka.bootstrap, PARTITIONS)
            if crashed:
                # As with Kafka, where a log starts is checkpointed once a minute and lost before that.
                found["trimmed-0"] = found["trimmed-0"][-60:]
            else:
                check_watermarks(kafka.bootstrap, {"trimmed-0": (40, 100), "empty-0": (0, 0)})
            assert found == written
            assert not [*data.glob("*-stray"), *data.glob("*-delete")]
            confluent.send(confluent.producer(kafka.bootstrap), "segments", plain_samples(10))
            assert len(contents(kafka.bootstrap, {"segments": 1})["segments-0"]) == 1010
    unchanged = segments(data)
    for name, digest in files.items():
        if name.startswith("codec-"):
            assert unchanged[name] == digest, f"{name} was changed by being opened"
