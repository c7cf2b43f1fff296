"""The same job, unchanged, on a standalone cluster and through Spark Connect: source and exactly-once sink."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog import TopicPartition
from braidlog.client.admin.records import OffsetSpec
from braidlog.testing import Broker
from support.spark_cluster import connect_server, standalone_cluster
from support.spark_process import SparkProblem, SparkProcess, spark_process

COUNT = 200


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker("process") as running:
        yield running


def copies_a_topic(spark: SparkProcess, broker: Broker, place: Path) -> None:
    """Reads a batch, copies a topic as a stream in two runs of one checkpoint, writes a batch."""
    server = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    source, target, other = (broker.create_topic(broker.unique_topic(name), partitions=2) for name in "abc")
    producer = broker.producer()
    for number in range(COUNT):
        producer.send(source, value=b"%d" % number, key=b"%d" % (number % 7), partition=number % 2)
    producer.flush()

    read = spark.read("braidlog", subscribe=source, includeHeaders="true", **server)
    assert [(record.partition, record.offset) for record in read] == [
        (partition, offset) for partition in range(2) for offset in range(COUNT // 2)
    ]

    reading = {"format": "braidlog", "subscribe": source, "startingOffsets": "earliest", "groupId": "copying", **server}
    writing = {"format": "braidlog", "topic": target, **server}
    assert sum(spark.stream(reading, writing, place, columns=("key", "value"))) == COUNT
    producer.send(source, value=b"late", partition=0).result(10)
    assert spark.stream(reading, writing, place, columns=("key", "value")) == [1]

    committed = spark.read("braidlog", subscribe=target, **server, **{"kafka.isolation.level": "read_committed"})
    expected = [b"%d" % number for number in range(COUNT)] + [b"late"]
    assert sorted(record.value or b"" for record in committed) == sorted(expected)
    # A transaction leaves a marker in each partition that it wrote to.
    partitions = [TopicPartition(target, number) for number in range(2)]
    ends = broker.admin().list_offsets(dict.fromkeys(partitions, int(OffsetSpec.LATEST)))
    assert sum(end.offset for end in ends.values()) > len(expected)

    spark.write("braidlog", [("k", "v")], "key string, value string", topic=other, **server)
    (written,) = spark.read("braidlog", subscribe=other, **server)
    assert (written.key, written.value) == (b"k", b"v")


def test_on_a_standalone_cluster(broker: Broker, tmp_path: Path) -> None:
    with standalone_cluster(tmp_path / "cluster") as cluster:
        conf = {
            "spark.master": cluster.master,
            "spark.executor.cores": "1",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        }
        with spark_process(conf) as spark:
            copies_a_topic(spark, broker, tmp_path / "checkpoint")
        # A driver of a cluster runs no tasks: what was read and written went through these.
        assert len(cluster.executors()) == 2


@pytest.mark.long
def test_through_spark_connect(broker: Broker, tmp_path: Path) -> None:
    with connect_server(tmp_path) as remote, spark_process({"spark.remote": remote}) as spark:
        copies_a_topic(spark, broker, tmp_path / "checkpoint")
        writes_batch_by_batch(spark, broker, tmp_path)


def writes_batch_by_batch(spark: SparkProcess, broker: Broker, place: Path) -> None:
    """Over Spark Connect tasks of a foreachBatch do not know their query."""
    server = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    source, target = (broker.create_topic(broker.unique_topic(name)) for name in "de")
    broker.producer().send(source, value=b"one").result(10)
    reading = {"format": "braidlog", "subscribe": source, "startingOffsets": "earliest", **server}
    writing = {"format": "foreachBatch", "topic": target, **server}
    with pytest.raises(SparkProblem, match="not over Spark Connect"):
        spark.stream(reading, writing, place / "once", columns=("value",))
    spark.stream(reading, {**writing, "delivery": "at-least-once"}, place / "least", columns=("value",))
    (written,) = spark.read("braidlog", subscribe=target, **server)
    assert written.value == b"one"
