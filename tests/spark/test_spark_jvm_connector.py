"""Spark's own Kafka connector, unmodified, reads from, streams from and writes to a braidlog broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tools.peers.maven import PeerMissing
from tools.peers.spark_kafka import spark_kafka_connector

from braidlog import TopicPartition
from braidlog.testing import Broker
from support.spark_process import Record, SparkProblem, SparkProcess, spark_process

pytestmark = pytest.mark.peer

PARTITIONS = 3
EACH = 40
BEGAN_MS = 1_700_000_000_000
STEP_MS = 1_000


class Scene(NamedTuple):
    """A broker with a topic in which record n of a partition has the timestamp BEGAN_MS + n * STEP_MS."""

    spark: SparkProcess
    broker: Broker
    topic: str

    def options(self, **options: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.broker.bootstrap_servers, **options}

    def read(self, **options: str) -> list[Record]:
        return self.spark.read("kafka", **self.options(**options))

    def offsets(self, **options: str) -> dict[int, tuple[int, int, int]]:
        """By partition: the first and the last offset, and how many were read."""
        found: dict[int, list[int]] = {}
        for record in self.read(**options):
            found.setdefault(record.partition, []).append(record.offset)
        return {partition: (read[0], read[-1], len(read)) for partition, read in found.items()}

    def source(self, **options: str) -> dict[str, str]:
        return self.options(format="kafka", includeHeaders="true", **options)

    def sink(self, **options: str) -> dict[str, str]:
        return self.options(format="kafka", **options)

    def of(self, *values: object, topic: str | None = None) -> str:
        """JSON for the partitions in order."""
        return json.dumps({topic or self.topic: {str(number): value for number, value in enumerate(values)}})


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    try:
        connector = spark_kafka_connector()
    except PeerMissing as missing:
        pytest.skip(str(missing))
    with Broker("process") as broker, spark_process({"spark.jars": connector.conf}) as spark:
        topic = broker.create_topic("jvm-records", partitions=PARTITIONS, retention_ms=-1)
        fill(broker, topic)
        yield Scene(spark, broker, topic)


def fill(broker: Broker, topic: str) -> None:
    producer = broker.producer()
    for partition in range(PARTITIONS):
        for number in range(EACH):
            producer.send(
                topic,
                value=None if number % 10 == 7 else b"value %d" % number,
                key=None if number % 4 == 0 else b"key %d" % number,
                partition=partition,
                timestamp_ms=BEGAN_MS + number * STEP_MS,
                headers=[("trace", b"%d" % number), ("trace", None), ("empty", b"")] if number % 3 == 0 else None,
            )
    producer.flush()


def everything(first: int = 0, last: int = EACH - 1) -> dict[int, tuple[int, int, int]]:
    return dict.fromkeys(range(PARTITIONS), (first, last, last - first + 1))


# Batches


def test_reads_every_column_of_every_record(scene: Scene) -> None:
    records = scene.read(subscribe=scene.topic, includeHeaders="true")
    expected = [
        Record(
            None if number % 4 == 0 else b"key %d" % number,
            None if number % 10 == 7 else b"value %d" % number,
            scene.topic,
            partition,
            number,
            (BEGAN_MS + number * STEP_MS) * 1000,
            0,
            (("trace", b"%d" % number), ("trace", None), ("empty", b"")) if number % 3 == 0 else None,
        )
        for partition in range(PARTITIONS)
        for number in range(EACH)
    ]
    assert records == expected


def test_reads_from_the_earliest_to_the_latest_unless_it_is_told(scene: Scene) -> None:
    assert scene.offsets(subscribe=scene.topic) == everything()
    assert scene.read(subscribe=scene.topic, includeHeaders="false")[0].headers is None


def test_reads_between_offsets(scene: Scene) -> None:
    bounds = {"startingOffsets": scene.of(5, -2, 30), "endingOffsets": scene.of(10, 12, -1)}
    assert scene.offsets(subscribe=scene.topic, **bounds) == {0: (5, 9, 5), 1: (0, 11, 12), 2: (30, 39, 10)}


def test_reads_between_times(scene: Scene) -> None:
    times = {
        "startingTimestamp": str(BEGAN_MS + 10 * STEP_MS),
        "endingTimestamp": str(BEGAN_MS + 20 * STEP_MS),
    }
    assert scene.offsets(subscribe=scene.topic, **times) == everything(10, 19)


def test_reads_between_times_by_partition(scene: Scene) -> None:
    # A time between two records means the later of them.
    times = {
        "startingOffsetsByTimestamp": scene.of(BEGAN_MS - 1, BEGAN_MS + 1, BEGAN_MS + 39 * STEP_MS),
        "endingOffsetsByTimestamp": scene.of(BEGAN_MS + 2 * STEP_MS, BEGAN_MS + 10**9, BEGAN_MS + 10**9),
    }
    assert scene.offsets(subscribe=scene.topic, **times) == {0: (0, 1, 2), 1: (1, 39, 39), 2: (39, 39, 1)}


def test_says_that_no_record_is_so_young(scene: Scene) -> None:
    with pytest.raises(SparkProblem, match="No offset matched"):
        scene.read(subscribe=scene.topic, startingTimestamp=str(BEGAN_MS + 10**9))
    late = {"startingTimestamp": str(BEGAN_MS + 10**9), "startingOffsetsByTimestampStrategy": "latest"}
    assert scene.read(subscribe=scene.topic, **late) == []


def test_reads_topics_by_pattern(scene: Scene) -> None:
    names = [scene.broker.create_topic(f"patterned-{name}", partitions=2) for name in ("one", "two", "three")]
    producer = scene.broker.producer()
    for name in names:
        producer.send(name, value=name.encode(), partition=1)
    producer.flush()
    found = scene.read(subscribePattern="patterned-t.*")
    assert [(record.topic, record.value, record.partition) for record in found] == [
        ("patterned-three", b"patterned-three", 1),
        ("patterned-two", b"patterned-two", 1),
    ]


def test_reads_assigned_partitions(scene: Scene) -> None:
    assert set(scene.offsets(assign=json.dumps({scene.topic: [0, 2]}))) == {0, 2}


def test_splits_partitions_into_more_tasks(scene: Scene) -> None:
    options = scene.options(subscribe=scene.topic, minPartitions="9")
    assert scene.spark.partitions("kafka", **options) >= 9
    assert scene.offsets(subscribe=scene.topic, minPartitions="9") == everything()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_reads_compressed_batches(scene: Scene, codec: str) -> None:
    topic = scene.broker.create_topic(f"compressed-{codec}")
    producer = scene.broker.producer(compression_type=codec)
    for number in range(200):
        producer.send(topic, value=b"the same words again and again %d" % number)
    producer.flush()
    found = [record.value for record in scene.read(subscribe=topic)]
    assert found == [b"the same words again and again %d" % number for number in range(200)]


def test_reads_a_brokers_timestamps(scene: Scene) -> None:
    topic = scene.broker.create_topic("append-time", message_timestamp_type="LogAppendTime")
    scene.broker.producer().send(topic, value=b"x", timestamp_ms=BEGAN_MS).result(10)
    (record,) = scene.read(subscribe=topic)
    assert record.timestamp_type == 1
    assert record.timestamp > BEGAN_MS * 1000


def test_skips_what_was_aborted(scene: Scene) -> None:
    topic = scene.broker.create_topic("transactions")
    producer = scene.broker.producer(transactional_id="jvm-connector")
    producer.init_transactions()
    for name, ends_well in (("first", True), ("second", False), ("third", True)):
        producer.begin_transaction()
        producer.send(topic, value=name.encode())
        producer.flush()
        (producer.commit_transaction if ends_well else producer.abort_transaction)()
    committed = scene.read(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    assert [(record.value, record.offset) for record in committed] == [(b"first", 0), (b"third", 4)]
    assert len(scene.read(subscribe=topic)) == 3


def test_reads_past_deleted_records_and_names_the_loss(scene: Scene) -> None:
    topic = scene.broker.create_topic("shortened")
    producer = scene.broker.producer()
    for number in range(20):
        producer.send(topic, value=b"%d" % number)
    producer.flush()
    scene.broker.admin().delete_records({TopicPartition(topic, 0): 15})
    assert scene.offsets(subscribe=topic) == {0: (15, 19, 5)}
    lost = {"startingOffsets": scene.of(3, topic=topic)}
    assert scene.offsets(subscribe=topic, failOnDataLoss="false", **lost) == {0: (15, 19, 5)}
    with pytest.raises(SparkProblem, match="failOnDataLoss"):
        scene.read(subscribe=topic, **lost)


# Streams


def test_streams_what_there_is_and_goes_on_from_its_checkpoint(scene: Scene, tmp_path: Path) -> None:
    broker, topic = scene.broker, scene.broker.create_topic("streamed", partitions=2)
    target = broker.create_topic("streamed-copy", partitions=2)
    producer = broker.producer()
    send_numbers(producer, topic, 0, 100)
    source = scene.source(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="30")
    batches = scene.spark.stream(source, scene.sink(topic=target), tmp_path / "checkpoint")
    # A share of the limit is rounded, so that a batch may be one short.
    assert sum(batches) == 100
    assert len(batches) in (4, 5)
    assert max(batches) <= 30
    send_numbers(producer, topic, 100, 140)
    assert sum(scene.spark.stream(source, scene.sink(topic=target), tmp_path / "checkpoint")) == 40
    copied = scene.read(subscribe=target, includeHeaders="true")
    assert sorted(int(record.value or b"-1") for record in copied) == list(range(140))
    assert {record.headers for record in copied} == {(("origin", b"test"),)}
    assert scene.spark.stream(source, scene.sink(topic=target), tmp_path / "checkpoint") == []


def test_streams_by_a_clock(scene: Scene, tmp_path: Path) -> None:
    broker, topic = scene.broker, scene.broker.create_topic("ticking", partitions=2)
    target = broker.create_topic("ticking-copy")
    send_numbers(broker.producer(), topic, 0, 60)
    batches = scene.spark.stream(
        scene.source(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="20"),
        scene.sink(topic=target),
        tmp_path / "checkpoint",
        trigger={"processingTime": "200 milliseconds"},
        batches=3,
    )
    assert sum(batches) == 60
    assert len(batches) in (3, 4)
    assert len(scene.read(subscribe=target)) == 60


def test_streams_partitions_that_were_added(scene: Scene, tmp_path: Path) -> None:
    broker, topic = scene.broker, scene.broker.create_topic("growing")
    target = broker.create_topic("growing-copy")
    producer = broker.producer()
    producer.send(topic, value=b"before", partition=0).result(10)
    source = scene.source(subscribe=topic, startingOffsets="earliest")
    assert scene.spark.stream(source, scene.sink(topic=target), tmp_path / "checkpoint") == [1]
    broker.admin().create_partitions({topic: 2})
    late = broker.producer()
    late.send(topic, value=b"after", partition=1).result(10)
    assert scene.spark.stream(source, scene.sink(topic=target), tmp_path / "checkpoint") == [1]
    assert sorted(record.value or b"" for record in scene.read(subscribe=target)) == [b"after", b"before"]


# Writing


def test_writes_a_batch_with_all_columns(scene: Scene) -> None:
    first, second = (scene.broker.create_topic(f"written-{name}", partitions=2) for name in ("first", "second"))
    schema = "topic string, partition int, key binary, value binary, headers array<struct<key: string, value: binary>>"
    rows = [
        (first, 0, b"a", b"1", [("h", b"x"), ("h", None)]),
        (first, 1, None, b"2", None),
        (second, 1, b"b", None, []),
    ]
    scene.spark.write("kafka", rows, schema, includeHeaders="true", **scene.options())
    found = scene.read(subscribe=f"{first},{second}", includeHeaders="true")
    assert [(r.topic, r.partition, r.key, r.value, r.headers) for r in found] == [
        (first, 0, b"a", b"1", (("h", b"x"), ("h", None))),
        (first, 1, None, b"2", None),
        (second, 1, b"b", None, None),
    ]


def test_writes_text_to_a_topic_that_is_made_for_it(scene: Scene) -> None:
    rows = [(f"key {number}", f"value {number}") for number in range(50)]
    options = {"topic": "made-by-the-connector", "kafka.compression.type": "zstd"}
    scene.spark.write("kafka", rows, "key string, value string", **scene.options(**options))
    found = scene.read(subscribe="made-by-the-connector")
    assert sorted(record.value or b"" for record in found) == sorted(value.encode() for _, value in rows)


def send_numbers(producer: object, topic: str, first: int, last: int) -> None:
    for number in range(first, last):
        producer.send(  # type: ignore[attr-defined]
            topic, value=b"%d" % number, partition=number % 2, headers=[("origin", b"test")]
        )
    producer.flush()  # type: ignore[attr-defined]
