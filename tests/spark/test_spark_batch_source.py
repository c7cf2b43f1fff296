"""Topics as DataFrames: a real Spark session reads from a real broker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from braidlog import Producer, TopicPartition
from braidlog.testing import Broker

FIRST_MS = 1_700_000_000_000
PER_PARTITION = (20, 10, 0)

# As spark-sql-kafka-0-10 answers to `df.schema`.
CONNECTOR = StructType(
    [
        StructField("key", BinaryType(), True),
        StructField("value", BinaryType(), True),
        StructField("topic", StringType(), True),
        StructField("partition", IntegerType(), True),
        StructField("offset", LongType(), True),
        StructField("timestamp", TimestampType(), True),
        StructField("timestampType", IntegerType(), True),
    ]
)
HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType(), True), StructField("value", BinaryType(), True)]), True),
    True,
)


class Data:
    """One topic with a known record at every offset: 20 in partition 0, 10 in partition 1, none in partition 2."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        # The records are older than what brokers keep.
        self.topic = broker.create_topic("readings", partitions=len(PER_PARTITION), retention_ms=-1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for partition, count in enumerate(PER_PARTITION):
                for offset in range(count):
                    producer.send(
                        self.topic,
                        f"{partition}:{offset}".encode(),
                        key=f"key {offset}".encode() if offset % 2 else None,
                        partition=partition,
                        timestamp_ms=FIRST_MS + offset * 1000,
                        headers=[("trace", b"\x00\x01"), ("none", None)] if offset == 3 else [],
                    )
        self.all = {(each, offset) for each, count in enumerate(PER_PARTITION) for offset in range(count)}


@pytest.fixture(scope="module")
def data() -> Iterator[Data]:
    with Broker() as broker:
        yield Data(broker)


def read(spark: SparkSession, data: Data, **options: Any) -> DataFrame:
    if not {"subscribe", "subscribePattern", "assign"} & options.keys():
        options["subscribe"] = data.topic
    reader = spark.read.format("braidlog").option("kafka.bootstrap.servers", data.broker.bootstrap_servers)
    for name, value in options.items():
        reader = reader.option(name, json.dumps(value) if isinstance(value, dict) else value)
    return reader.load()


def places(frame: DataFrame) -> set[tuple[int, int]]:
    rows = frame.select("partition", "offset").collect()
    found = {(row.partition, row.offset) for row in rows}
    assert len(found) == len(rows)
    return found


def test_the_schema_is_the_connectors(spark: SparkSession, data: Data) -> None:
    assert read(spark, data).schema == CONNECTOR
    assert read(spark, data, includeHeaders="true").schema == StructType([*CONNECTOR.fields, HEADERS])


def test_every_record_is_read_once_with_all_its_columns(spark: SparkSession, data: Data) -> None:
    rows = read(spark, data, includeHeaders="true").collect()
    assert {(row.partition, row.offset) for row in rows} == data.all
    assert len(rows) == len(data.all)
    for row in rows:
        assert bytes(row.value) == f"{row.partition}:{row.offset}".encode()
        assert (row.key and bytes(row.key)) == (f"key {row.offset}".encode() if row.offset % 2 else None)
        assert row.topic == data.topic
        assert row.timestamp.timestamp() * 1000 == FIRST_MS + row.offset * 1000
        assert row.timestampType == 0
        headers = row.headers and [(each.key, each.value and bytes(each.value)) for each in row.headers]
        assert headers == ([("trace", b"\x00\x01"), ("none", None)] if row.offset == 3 else None)


def test_a_schema_of_one_column_reads_that_column(spark: SparkSession, data: Data) -> None:
    frame = (
        spark.read.format("braidlog")
        .schema("value binary")
        .option("kafka.bootstrap.servers", data.broker.bootstrap_servers)
        .option("subscribe", data.topic)
        .load()
    )
    assert frame.columns == ["value"]
    assert {bytes(row.value) for row in frame.collect()} == {f"{p}:{o}".encode() for p, o in data.all}


OFFSETS = {"readings": {"0": 5, "1": -2, "2": -2}}


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (
            {"startingOffsets": OFFSETS, "endingOffsets": {"readings": {"0": 7, "1": 2, "2": -1}}},
            {0: range(5, 7), 1: range(2)},
        ),
        (
            # A time counts before offsets, and the one for all partitions before those of each.
            {
                "startingOffsets": OFFSETS,
                "startingOffsetsByTimestamp": {"readings": {"0": 0, "1": 0, "2": 0}},
                "startingTimestamp": FIRST_MS + 4500,
                "endingTimestamp": FIRST_MS + 8000,
            },
            {0: range(5, 8), 1: range(5, 8)},
        ),
        (
            {
                "startingOffsetsByTimestamp": {"readings": {"0": FIRST_MS + 18_000, "1": 0, "2": 0}},
                "endingOffsetsByTimestamp": {"readings": {"0": FIRST_MS + 60_000, "1": FIRST_MS + 3000, "2": 0}},
            },
            {0: range(18, 20), 1: range(3)},
        ),
    ],
)
def test_bounds(spark: SparkSession, data: Data, options: dict[str, Any], wanted: dict[int, range]) -> None:
    # Partition 2 is empty, so no record of it is as late as any start.
    frame = read(spark, data, startingOffsetsByTimestampStrategy="latest", **options)
    assert places(frame) == {(partition, offset) for partition, offsets in wanted.items() for offset in offsets}


def test_topics_by_pattern_and_partitions_by_name(spark: SparkSession, data: Data) -> None:
    for name in ("patterned-a", "patterned-b", "other-c"):
        data.broker.create_topic(name)
        with Producer(bootstrap_servers=data.broker.bootstrap_servers) as producer:
            producer.send(name, b"x")
    found = read(spark, data, subscribePattern="^patterned-[a-z]$").select("topic").collect()
    assert sorted(row.topic for row in found) == ["patterned-a", "patterned-b"]
    assert places(read(spark, data, assign={data.topic: [1]})) == {(1, offset) for offset in range(10)}
    both = read(spark, data, subscribe=f"patterned-a, {data.topic}").groupBy("topic").count().collect()
    assert {row.topic: row["count"] for row in both} == {"patterned-a": 1, data.topic: 30}
    assert read(spark, data, subscribePattern="no topic has blanks").count() == 0


def test_an_empty_topic_gives_no_rows(spark: SparkSession, data: Data) -> None:
    empty = read(spark, data, subscribe=data.broker.create_topic(partitions=4))
    assert empty.count() == 0
    assert empty.rdd.getNumPartitions() == 1


def test_tasks(spark: SparkSession, data: Data) -> None:
    assert read(spark, data).rdd.getNumPartitions() == 2
    shared = read(spark, data, minPartitions=6)
    assert shared.rdd.getNumPartitions() == 6
    assert places(shared) == data.all
    assert read(spark, data, maxRecordsPerPartition=3).rdd.getNumPartitions() == 7 + 4


def test_aborted_and_open_transactions_are_not_seen_under_read_committed(spark: SparkSession, data: Data) -> None:
    topic = data.broker.create_topic()
    servers = data.broker.bootstrap_servers
    with (
        Producer(bootstrap_servers=servers, transactional_id="done") as done,
        Producer(bootstrap_servers=servers, transactional_id="open") as still_open,
    ):
        done.init_transactions()
        done.begin_transaction()
        done.send(topic, b"aborted").result()
        done.abort_transaction()
        done.begin_transaction()
        done.send(topic, b"committed").result()
        done.commit_transaction()
        still_open.init_transactions()
        still_open.begin_transaction()
        still_open.send(topic, b"open").result()
        committed = read(spark, data, subscribe=topic, **{"kafka.isolation.level": "read_committed"})
        assert [bytes(row.value) for row in committed.collect()] == [b"committed"]
        everything = read(spark, data, subscribe=topic)
        assert [bytes(row.value) for row in everything.collect()] == [b"aborted", b"committed", b"open"]
        still_open.abort_transaction()


def test_deleted_offsets_fail_the_query_unless_that_is_allowed(spark: SparkSession, data: Data) -> None:
    topic = data.broker.create_topic()
    with Producer(bootstrap_servers=data.broker.bootstrap_servers) as producer:
        for number in range(6):
            producer.send(topic, str(number).encode())
    data.broker.admin().delete_records({TopicPartition(topic, 0): 4}).raise_for_errors()
    asked = {"subscribe": topic, "startingOffsets": {topic: {"0": 1}}}
    with pytest.raises(PySparkException, match=r"from 1 are asked for, but the log begins at 4 \(3 were deleted\)"):
        read(spark, data, **asked).count()
    assert places(read(spark, data, failOnDataLoss="false", **asked)) == {(0, 4), (0, 5)}
    assert places(read(spark, data, subscribe=topic)) == {(0, 4), (0, 5)}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "no-such-topic"}, "topic no-such-topic does not exist"),
        ({"startingOffsets": '{"readings": {"0": 1,}}'}, "startingOffsets is not valid JSON"),
        ({"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": 5000}, "no broker answers"),
    ],
)
def test_mistakes_are_told_in_a_sentence(
    spark: SparkSession, data: Data, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(PySparkException) as raised:
        read(spark, data, **options).count()
    assert sentence in str(raised.value)


class TestPushedFilters:
    @pytest.fixture(autouse=True)
    def _pushdown(self, spark: SparkSession) -> Iterator[None]:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        yield
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")

    @pytest.mark.parametrize(
        ("condition", "wanted", "tasks"),
        [
            (
                "topic like 'read%' and partition in (1, 2) and offset >= 4 and offset not in (5)",
                {(1, offset) for offset in (4, 6, 7, 8, 9)},
                1,
            ),
            ("timestamp >= timestamp_millis(1700000012000)", {(0, offset) for offset in range(12, 20)}, 1),
            ("offset in (3, 5) and timestamp < timestamp_millis(1700000004000)", {(0, 3), (1, 3)}, 2),
        ],
    )
    def test_filters_narrow_the_plan_and_stay_true(
        self, spark: SparkSession, data: Data, condition: str, wanted: set[tuple[int, int]], tasks: int
    ) -> None:
        frame = read(spark, data, pushFilters="true").where(condition)
        assert frame.rdd.getNumPartitions() == tasks
        assert places(frame) == wanted == places(read(spark, data).where(condition))
