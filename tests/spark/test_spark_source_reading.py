"""What tasks read: every kind of record batch, only what the schema asks for, and what is left of lost data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from braidlog import TopicPartition
from braidlog.testing import Broker
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.reading import Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GZIP = 1
EACH = 40


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"auto.create.topics.enable": "false"}) as running:
        yield running


def load(spark: SparkSession, broker: Broker, topic: str, schema: str | None = None, **options: Any) -> DataFrame:
    reader = spark.read.format("braidlog").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    if schema is not None:
        reader = reader.schema(schema)
    for name, value in options.items():
        reader = reader.option(name.replace("__", "."), value)
    return reader.option("subscribe", topic).load()


def texts(frame: DataFrame) -> list[str]:
    return [row[0] for row in frame.orderBy("offset").select(F.col("value").cast("string")).collect()]


class Planned:
    """A query whose offsets are found out now, and whose tasks run when it is collected."""

    def __init__(self, frame: DataFrame) -> None:
        self._rows = frame.select(F.col("value").cast("string")).rdd
        self._rows.getNumPartitions()

    def collect(self) -> list[str]:
        return [row[0] for row in self._rows.collect()]


def test_every_codec_and_both_kinds_of_old_messages(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic(retention_ms=-1)
    broker.stop()
    log = broker.data_dir / f"{topic}-0" / "00000000000000000000.log"
    old = build_message_set([Record(key=b"k", value=b"zeroth")], magic=0)
    old += build_message_set([Record(value=b"first", timestamp=1_700_000_000_000)], magic=1, codec=GZIP, base_offset=1)
    log.write_bytes(old)
    broker.start()
    for codec in CODECS:
        with broker.producer(compression_type=codec, linger_ms=50) as producer:
            for number in range(EACH):
                producer.send(topic, f"{codec} {number}".encode() * 20, headers=[("codec", codec.encode())])
    rows = load(spark, broker, topic, includeHeaders="true").orderBy("offset").collect()
    assert [row.offset for row in rows] == list(range(2 + EACH * len(CODECS)))
    assert [bytes(row.value) for row in rows] == [
        b"zeroth",
        b"first",
        *(f"{codec} {number}".encode() * 20 for codec in CODECS for number in range(EACH)),
    ]
    # The first format had no timestamps, and none of the old ones headers.
    assert [row.timestampType for row in rows[:3]] == [-1, 0, 0]
    assert [row.headers for row in rows[:2]] == [None, None]
    assert [bytes(row.headers[0].value).decode() for row in rows[2::EACH]] == list(CODECS)


def test_what_was_aborted_is_left_out_of_committed_reads(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic()
    with broker.producer(transactional_id="spark-reading") as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, f"{number} a".encode())
            producer.send(topic, f"{number} b".encode())
            producer.flush()
            if number % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    committed = load(spark, broker, topic, kafka__isolation__level="read_committed")
    assert texts(committed) == ["0 a", "0 b", "2 a", "2 b"]
    assert texts(load(spark, broker, topic)) == [f"{number} {each}" for number in range(4) for each in "ab"]
    # The markers have offsets and are no rows.
    assert load(spark, broker, topic).agg(F.max("offset")).collect()[0][0] == 10


@pytest.fixture(scope="module")
def numbers(broker: Broker) -> str:
    """300 records in one partition, in batches of at most 10."""
    topic = broker.create_topic()
    fill(broker, topic, 300)
    return topic


def fill(broker: Broker, topic: str, count: int) -> None:
    with broker.producer() as producer:
        for number in range(count):
            producer.send(topic, str(number).encode(), partition=0)
            if number % 10 == 9:
                producer.flush()


def test_a_count_needs_no_column(spark: SparkSession, broker: Broker, numbers: str) -> None:
    assert load(spark, broker, numbers).count() == 300
    assert load(spark, broker, numbers, "offset bigint").count() == 300


def test_a_partition_shared_by_tasks(spark: SparkSession, broker: Broker, numbers: str) -> None:
    frame = load(spark, broker, numbers, minPartitions=7)
    assert frame.rdd.getNumPartitions() >= 7
    assert texts(frame) == [str(number) for number in range(300)]


def test_enough_of_it_is_enough(spark: SparkSession, broker: Broker, numbers: str) -> None:
    for _ in range(3):
        assert len(load(spark, broker, numbers).limit(5).collect()) == 5


@pytest.mark.parametrize(
    ("schema", "reported"),
    [
        ("value string", "column value is binary, not string; read it so and cast it"),
        ("body binary", "records have no column 'body'; .* key binary, value binary, topic string, partition int"),
        ("timestamp long", "column timestamp is timestamp, not bigint"),
    ],
)
def test_a_schema_that_records_do_not_have(
    spark: SparkSession, broker: Broker, numbers: str, schema: str, reported: str
) -> None:
    with pytest.raises(PySparkException, match=reported):
        load(spark, broker, numbers, schema).collect()


def test_values_of_a_megabyte(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic(max_message_bytes=2_000_000)
    with broker.producer(max_request_size=2_000_000) as producer:
        for number in range(40):
            producer.send(topic, bytes([number]) * 1_048_576, partition=0)
    frame = load(spark, broker, topic).select(F.length("value").alias("size"), F.substring("value", 1, 1).alias("head"))
    rows = frame.collect()
    assert {row.size for row in rows} == {1_048_576}
    assert sorted(row.head[0] for row in rows) == list(range(40))


def test_a_damaged_batch_stops_the_query(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic(retention_ms=-1)
    broker.stop()
    damaged = bytearray(build_batch([Record(value=b"whole" * 10)], base_offset=1))
    damaged[-5] ^= 1
    log = broker.data_dir / f"{topic}-0" / "00000000000000000000.log"
    log.write_bytes(build_batch([Record(value=b"whole")]) + bytes(damaged))
    broker.start()
    for lenient in ("true", "false"):
        with pytest.raises(PySparkException, match=rf"{topic}-0 cannot be read at offset 1.*read on at offset 2"):
            load(spark, broker, topic, failOnDataLoss=lenient).collect()


def test_retention_between_plan_and_task(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic()
    fill(broker, topic, 100)
    strict = Planned(load(spark, broker, topic))
    lenient = Planned(load(spark, broker, topic, failOnDataLoss="false"))
    with broker.admin() as admin:
        admin.delete_records({TopicPartition(topic, 0): 70}).raise_for_errors()
    with pytest.raises(PySparkException, match=r"retention deleted 70 offsets .*\(0 to 69\).*begins at offset 70 now"):
        strict.collect()
    assert lenient.collect() == [str(number) for number in range(70, 100)]


def test_another_topic_of_the_name(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic()
    fill(broker, topic, 20)
    # Both workers know the topic by now, and its id.
    assert load(spark, broker, topic, minPartitions=2).count() == 20
    strict = Planned(load(spark, broker, topic))
    lenient = Planned(load(spark, broker, topic, failOnDataLoss="false"))
    broker.delete_topic(topic)
    broker.create_topic(topic)
    fill(broker, topic, 30)
    with pytest.raises(PySparkException, match="deleted and created again since this was planned"):
        strict.collect()
    assert lenient.collect() == []
    assert texts(load(spark, broker, topic)) == [str(number) for number in range(30)]


def test_a_topic_that_is_gone(spark: SparkSession, broker: Broker) -> None:
    topic = broker.create_topic()
    fill(broker, topic, 20)
    strict = Planned(load(spark, broker, topic))
    broker.delete_topic(topic)
    with pytest.raises(PySparkException, match="the topic was deleted, and with it 20 offsets"):
        strict.collect()
