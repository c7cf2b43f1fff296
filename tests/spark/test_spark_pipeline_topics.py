"""The pipeline's functions between topics: malformed records routed in one pass, streams enriched from a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from braidlog import Producer
from braidlog.testing import Broker
from pyspark_braidlog.pipeline import decode_json, enrich, latest_by_key, refreshed, route


class Topics:
    """A broker's topics from Spark."""

    def __init__(self, spark: SparkSession, broker: Broker, directory: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._directory = directory
        self._servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}

    def new(self, **config: str) -> str:
        return self._broker.create_topic(partitions=1, **config)

    def send(self, topic: str, *records: tuple[str, object]) -> None:
        with Producer(bootstrap_servers=self._broker.bootstrap_servers) as producer:
            for key, value in records:
                data = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
                producer.send(topic, data, key=key.encode(), headers=[("trace", b"t")])

    def read(self, topic: str) -> DataFrame:
        options = {"subscribe": topic, "includeHeaders": "true"}
        return self._spark.read.format("braidlog").options(**self._servers, **options).load()

    def stream(self, topic: str, **options: str) -> DataFrame:
        given = {"subscribe": topic, "startingOffsets": "earliest", "includeHeaders": "true", **options}
        return self._spark.readStream.format("braidlog").options(**self._servers, **given).load()

    def write(self, frame: DataFrame) -> Any:
        """Run to the end of what is there; the query's progress."""
        writer = frame.writeStream.format("braidlog").options(**self._servers)
        return self.run(writer)

    def run(self, writer: Any) -> Any:
        query = (
            writer.option("checkpointLocation", str(self._directory / "checkpoint")).trigger(availableNow=True).start()
        )
        assert query.awaitTermination(180)
        return query.recentProgress


@pytest.fixture
def topics(spark: SparkSession, braidlog_broker: Broker, tmp_path: Path) -> Topics:
    return Topics(spark, braidlog_broker, tmp_path)


def test_good_and_malformed_records_in_one_query(topics: Topics) -> None:
    events, clean, dead = topics.new(), topics.new(), topics.new()
    topics.send(events, ("a", {"id": 1}), ("b", b"{oops"), ("c", {"id": "x"}), ("d", {"id": 4}))
    decoded = decode_json(topics.stream(events), "id int")
    value = F.to_json(F.struct((F.col("value.id") * 10).alias("tenfold")))
    progress = topics.write(route(decoded, clean, dead, value=value))
    assert sum(each.numInputRows for each in progress) == 4, "the topic is read once"
    good = [(bytes(row.key), bytes(row.value), len(row.headers)) for row in topics.read(clean).collect()]
    assert good == [(b"a", b'{"tenfold":10}', 1), (b"d", b'{"tenfold":40}', 1)]
    letters = topics.read(dead).collect()
    assert [bytes(row.value) for row in letters] == [b"{oops", b'{"id": "x"}']
    headers = {header.key: bytes(header.value).decode() for header in letters[1].headers}
    timestamp = headers.pop("dead-letter.timestamp")
    assert timestamp.endswith("Z")
    assert headers == {
        "trace": "t",
        "dead-letter.error": "value does not fit the schema: id is not int",
        "dead-letter.topic": events,
        "dead-letter.partition": "0",
        "dead-letter.offset": "2",
    }


def test_a_stream_sees_the_table_of_its_start_or_a_refreshed_one(topics: Topics) -> None:
    """Spark asks a Python source once a load how far to read, so the static side of a join stays as it was."""
    clicks, users = topics.new(), topics.new(cleanup_policy="compact")
    topics.send(users, ("1", {"name": "ann"}), ("2", {"name": "bob"}), ("2", None))
    topics.send(clicks, ("x", {"user": "1"}), ("y", {"user": "2"}), ("z", {"user": "1"}))

    def read() -> DataFrame:
        return decode_json(latest_by_key(topics.read(users)), "name string").select("key", "value.name")

    living = refreshed(read, every_s=0)
    stream = decode_json(topics.stream(clicks, maxOffsetsPerTrigger="1"), "user string").select("value.user", "offset")
    joined = enrich(stream, read(), on={"user": "key"})
    seen: dict[int, tuple[str | None, str | None]] = {}

    def take(batch: DataFrame, batch_id: int) -> None:
        (row,) = enrich(batch, living(), on={"user": "key"}, prefix="living_").collect()
        seen[batch_id] = row.name, row.living_name
        if batch_id == 0:
            topics.send(users, ("1", {"name": "anna"}), ("2", {"name": "bert"}))

    topics.run(joined.writeStream.foreachBatch(take))
    assert seen == {0: ("ann", "ann"), 1: (None, "bert"), 2: ("ann", "anna")}
