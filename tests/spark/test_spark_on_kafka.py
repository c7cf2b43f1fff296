"""Source and sink against Apache Kafka, and row for row beside Spark's own connector."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tools.peers.kafka import start_kafka
from tools.peers.maven import PeerMissing
from tools.peers.spark_kafka import spark_kafka_connector

from braidlog import Admin, Producer, TopicPartition
from braidlog.client.admin.topics import NewTopic
from support.spark_process import Record, SparkProblem, SparkProcess, spark_process

pytestmark = pytest.mark.peer

JVM = ("-Xmx512M", "-Xms128M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
BEGAN_MS = 1_700_000_000_000
PARTITIONS = 3
EACH = 60
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Scene(NamedTuple):
    spark: SparkProcess
    bootstrap: str

    @property
    def server(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.bootstrap}

    def both(self, **options: str) -> list[Record]:
        """What the connector reads; ours must read the same, in every column."""
        theirs = self.spark.read("kafka", **self.server, **options)
        ours = self.spark.read("braidlog", **self.server, **options)
        assert ours == theirs
        return theirs

    def create(self, name: str, partitions: int = 1, **configs: str) -> str:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            admin.create_topics([NewTopic(name, partitions, config=settings)])
        return name


@pytest.fixture(scope="module")
def scene(apache_kafka: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    try:
        connector = spark_kafka_connector()
    except PeerMissing as missing:
        pytest.skip(str(missing))
    data = tmp_path_factory.mktemp("kafka")
    with start_kafka(data, jvm=JVM) as kafka, spark_process({"spark.jars": connector.conf}) as spark:
        running = Scene(spark, kafka.bootstrap)
        running.create("records", PARTITIONS, retention_ms="-1")
        fill(running)
        yield running


def fill(scene: Scene) -> None:
    """Every codec, keys and values that are null or empty, headers that repeat, are null, are empty."""
    for turn, codec in enumerate(CODECS):
        with Producer(bootstrap_servers=scene.bootstrap, compression_type=codec) as producer:
            share = EACH // len(CODECS)
            for number in range(turn * share, (turn + 1) * share):
                for partition in range(PARTITIONS):
                    producer.send(
                        "records",
                        value=(None, b"", b"value %d \xff\x00" % number)[min(number % 5, 2)],
                        key=(None, b"", b"key %d" % number)[min(number % 4, 2)],
                        partition=partition,
                        timestamp_ms=BEGAN_MS + number * 1000 + partition,
                        headers=[("a", b"%d" % number), ("a", None), ("", b"")] if number % 3 == 0 else None,
                    )


# The same rows as the connector's


def test_the_columns_are_the_connectors(scene: Scene) -> None:
    for more in ({}, {"includeHeaders": "true"}, {"includeHeaders": "false"}):
        options = {**scene.server, "subscribe": "records", **more}
        assert scene.spark.columns("braidlog", **options) == scene.spark.columns("kafka", **options)


def test_the_rows_are_the_connectors(scene: Scene) -> None:
    rows = scene.both(subscribe="records", includeHeaders="true")
    assert len(rows) == PARTITIONS * EACH
    assert {row.key for row in rows} >= {None, b""}
    assert {row.value for row in rows} >= {None, b""}
    assert {row.headers for row in rows} >= {None, (("a", b"0"), ("a", None), ("", b""))}


def of(*values: int) -> str:
    return json.dumps({"records": {str(number): value for number, value in enumerate(values)}})


@pytest.mark.parametrize(
    ("options", "count"),
    [
        pytest.param({"startingOffsets": of(5, -2, 50), "endingOffsets": of(7, 3, -1)}, 2 + 3 + 10, id="offsets"),
        pytest.param(
            {"startingTimestamp": str(BEGAN_MS + 10_001), "endingTimestamp": str(BEGAN_MS + 20_001)}, 30, id="times"
        ),
        pytest.param(
            {"startingOffsetsByTimestamp": of(BEGAN_MS, BEGAN_MS + 58_000, BEGAN_MS + 59_002)}, 63, id="times each"
        ),
        pytest.param(
            {"startingTimestamp": str(BEGAN_MS * 2), "startingOffsetsByTimestampStrategy": "latest"}, 0, id="too late"
        ),
        # A time wins over a time by partition, and that over an offset.
        pytest.param(
            {
                "startingTimestamp": str(BEGAN_MS + 55_000),
                "startingOffsetsByTimestamp": of(BEGAN_MS, BEGAN_MS, BEGAN_MS),
                "startingOffsets": of(1, 2, 3),
            },
            15,
            id="precedence",
        ),
        pytest.param({"minPartitions": "10"}, 180, id="minPartitions"),
    ],
)
def test_the_bounds_are_the_connectors(scene: Scene, options: dict[str, str], count: int) -> None:
    assert len(scene.both(subscribe="records", **options)) == count


def test_the_choice_of_topics_is_the_connectors(scene: Scene) -> None:
    assert len(scene.both(assign='{"records": [2, 0]}')) == 2 * EACH
    assert len(scene.both(subscribePattern="rec.*s")) == 3 * EACH
    # A part of the name is enough, unless the pattern says where it begins.
    assert len(scene.both(subscribePattern="ecord")) == 3 * EACH
    assert scene.both(subscribePattern="^ecord") == []


def test_timestamps_of_the_broker_are_told_apart(scene: Scene) -> None:
    topic = scene.create("append-time", message_timestamp_type="LogAppendTime")
    with Producer(bootstrap_servers=scene.bootstrap) as producer:
        producer.send(topic, value=b"x", timestamp_ms=BEGAN_MS)
    (row,) = scene.both(subscribe=topic)
    assert row.timestamp_type == 1
    assert row.timestamp > BEGAN_MS * 1000


def test_transactions_are_read_alike(scene: Scene) -> None:
    topic = scene.create("transactions")
    with Producer(bootstrap_servers=scene.bootstrap, transactional_id="on-kafka") as producer:
        producer.init_transactions()
        for name, ends_well in (("first", True), ("second", False), ("third", True)):
            producer.begin_transaction()
            producer.send(topic, value=name.encode())
            producer.flush()
            (producer.commit_transaction if ends_well else producer.abort_transaction)()
    committed = scene.both(subscribe=topic, **{"kafka.isolation.level": "read_committed"})
    assert [(row.value, row.offset) for row in committed] == [(b"first", 0), (b"third", 4)]
    assert len(scene.both(subscribe=topic)) == 3


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"subscribe": "records", "startingOffsets": "latest"}, id="latest start"),
        pytest.param({"subscribe": "records", "endingOffsets": "earliest"}, id="earliest end"),
        pytest.param({"subscribe": "records", "startingOffsets": '{"records": '}, id="bad JSON"),
        pytest.param({"subscribe": "records", "startingOffsets": '{"records": {"0": 1}}'}, id="partitions left out"),
        pytest.param({"subscribe": "records", "assign": '{"records": [0]}'}, id="two choices"),
        pytest.param({}, id="no choice"),
        pytest.param({"subscribe": "records", "startingTimestamp": str(BEGAN_MS * 2)}, id="too late"),
        pytest.param({"subscribe": "records", "kafka.auto.offset.reset": "latest"}, id="a reset policy"),
        pytest.param({"subscribe": "records", "kafka.enable.auto.commit": "true"}, id="auto commit"),
        pytest.param({"subscribe": "records", "kafka.key.deserializer": "x"}, id="a deserializer"),
        pytest.param({"subscribe": "records", "minPartitions": "0"}, id="no partitions"),
    ],
)
def test_both_refuse(scene: Scene, options: dict[str, str]) -> None:
    for source in ("kafka", "braidlog"):
        with pytest.raises(SparkProblem):
            scene.spark.read(source, **scene.server, **options)


# Streams


def test_a_stream_is_copied_exactly_once_with_its_lag_to_be_seen(scene: Scene, tmp_path: Path) -> None:
    source, target = scene.create("streamed", 2), scene.create("streamed-copy", 2)
    reading = {
        "format": "braidlog",
        "subscribe": source,
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "40",
        "groupId": "copying",
        **scene.server,
    }
    writing = {"format": "braidlog", "topic": target, **scene.server}
    with Producer(bootstrap_servers=scene.bootstrap) as producer:
        send_numbers(producer, source, 0, 100)
        assert sum(scene.spark.stream(reading, writing, tmp_path / "checkpoint")) == 100
        assert committed_offsets(scene, "copying", source) == [50, 50]
        send_numbers(producer, source, 100, 130)
    assert sum(scene.spark.stream(reading, writing, tmp_path / "checkpoint")) == 30
    assert committed_offsets(scene, "copying", source) == [65, 65]
    copied = scene.both(subscribe=target, includeHeaders="true", **{"kafka.isolation.level": "read_committed"})
    assert sorted(int(row.value or b"-1") for row in copied) == list(range(130))
    assert {row.headers for row in copied} == {(("origin", b"test"),)}


@pytest.mark.parametrize(("source", "sink"), [("kafka", "braidlog"), ("braidlog", "kafka")])
def test_one_reads_what_the_other_writes(scene: Scene, tmp_path: Path, source: str, sink: str) -> None:
    target = scene.create(f"from-{source}")
    reading = {"format": source, "subscribe": "records", "startingOffsets": "earliest", "includeHeaders": "true"}
    writing = {"format": sink, "topic": target, "includeHeaders": "true", **scene.server}
    batches = scene.spark.stream({**reading, **scene.server}, writing, tmp_path / "checkpoint")
    assert sum(batches) == PARTITIONS * EACH
    copied = scene.both(subscribe=target, includeHeaders="true")
    original = scene.both(subscribe="records", includeHeaders="true")
    assert sorted(map(content, copied)) == sorted(map(content, original))


def test_a_connectors_checkpoint_is_gone_on_with(scene: Scene, tmp_path: Path) -> None:
    """Who changes the format string of a running job keeps the place where it is."""
    source, target = scene.create("moved", 2), scene.create("moved-copy", 2)
    reading = {"subscribe": source, "startingOffsets": "earliest", "includeHeaders": "true", **scene.server}
    writing = {"topic": target, **scene.server}
    with Producer(bootstrap_servers=scene.bootstrap) as producer:
        send_numbers(producer, source, 0, 20)
        before = {"format": "kafka", **reading}, {"format": "kafka", **writing}
        assert scene.spark.stream(*before, tmp_path / "checkpoint") == [20]
        send_numbers(producer, source, 20, 30)
    after = {"format": "braidlog", **reading}, {"format": "braidlog", **writing}
    assert scene.spark.stream(*after, tmp_path / "checkpoint") == [10]
    assert scene.spark.stream(*after, tmp_path / "checkpoint") == []
    copied = scene.both(subscribe=target, **{"kafka.isolation.level": "read_committed"})
    assert sorted(int(row.value or b"-1") for row in copied) == list(range(30))


def content(row: Record) -> str:
    return repr((row.key, row.value, row.headers))


def committed_offsets(scene: Scene, group: str, topic: str) -> list[int]:
    with Admin(bootstrap_servers=scene.bootstrap) as admin:
        offsets = admin.list_group_offsets([group])[group]
    return [offsets[TopicPartition(topic, number)].offset for number in range(2)]


def send_numbers(producer: Producer, topic: str, first: int, last: int) -> None:
    for number in range(first, last):
        producer.send(topic, value=b"%d" % number, partition=number % 2, headers=[("origin", b"test")])
    producer.flush()
