"""What goes wrong in a query is told in one line that names the cause and what to do, and soon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from braidlog.testing import Broker
from pyspark_braidlog.errors import clear_error
from support.ports import lasting_port
from support.spark_failures import KINDS_OF_QUERY, READ, READ_STREAM, READS, WRITE, WRITE_STREAM, FailingQueries, target

TOPIC = "there"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(settings={"auto.create.topics.enable": "false"}) as running:
        running.create_topic(TOPIC)
        yield running


@pytest.fixture(scope="module")
def ways(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> FailingQueries:
    # A session's first query has Java load and compile: that is not what is timed here.
    spark.range(10).write.format("noop").mode("overwrite").save()
    return FailingQueries(spark, tmp_path_factory.mktemp("ways"))


@pytest.mark.parametrize("way", KINDS_OF_QUERY)
def test_no_broker_is_there(ways: FailingQueries, way: str) -> None:
    address = f"127.0.0.1:{lasting_port()}"
    line = ways.failing(way, {"kafka.bootstrap.servers": address, **target(way, TOPIC)}).line
    assert line.startswith(f"no answer from kafka.bootstrap.servers={address}"), line
    assert "refused" in line, line


@pytest.mark.parametrize("way", KINDS_OF_QUERY)
def test_the_topic_is_missing(ways: FailingQueries, broker: Broker, way: str) -> None:
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, **target(way, "nowhere")}
    line = ways.failing(way, options).line
    assert line.startswith("topic nowhere does not exist"), line
    assert "create it first" in line, line


BAD_OPTIONS = [
    pytest.param(way, options, cause, advice, id=f"{way}: {name}")
    for way, name, options, cause, advice in [
        (READ, "bad JSON", {"startingOffsets": '{"there": {"0": 1'}, "startingOffsets is not valid JSON", "e.g."),
        (READ_STREAM, "bad JSON", {"startingOffsets": "{there}"}, "startingOffsets is not valid JSON", "e.g."),
        (READ, "bad JSON, end", {"endingOffsets": '{"there": 7}'}, "option endingOffsets", "expected is e.g."),
        (READ, "latest", {"startingOffsets": "latest"}, "can't be latest in a batch query", "nothing to read"),
        (READ_STREAM, "an end", {"endingOffsets": "latest"}, "not valid in a streaming query", "read a batch"),
        (READ, "two choices", {"assign": '{"there":[0]}'}, "subscribe and assign are given together", "exactly one of"),
        (READ, "a misspelling", {"kafka.isolation.levle": "x"}, "no option kafka.isolation.levle", "did you mean"),
        (READ_STREAM, "no number", {"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger='many'", "whole number"),
        (READ, "a deserializer", {"kafka.value.deserializer": "x"}, "kafka.value.deserializer", "decode them with"),
        (WRITE, "a delivery", {"delivery": "twice"}, "option delivery='twice' is not known", "at-least-once or"),
        (WRITE_STREAM, "acks", {"kafka.acks": "1"}, "acks", "acks=all"),
        (WRITE_STREAM, "a transactional id", {"kafka.transactional.id": "x"}, "kafka.transactional.id", "sinkName"),
    ]
]


@pytest.mark.parametrize(("way", "options", "cause", "advice"), BAD_OPTIONS)
def test_an_option_is_wrong(
    ways: FailingQueries, broker: Broker, way: str, options: dict[str, str], cause: str, advice: str
) -> None:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, **target(way, TOPIC), **options}
    reported = ways.failing(way, given)
    line = reported.line
    assert cause in line, line
    assert advice in line, line
    # Nor is it buried under an error of PySpark's own.
    assert "UnboundLocalError" not in reported.text


@pytest.mark.parametrize("way", KINDS_OF_QUERY)
def test_an_option_is_missing(ways: FailingQueries, broker: Broker, way: str) -> None:
    line = ways.failing(way, target(way, TOPIC)).line
    assert line.startswith("option kafka.bootstrap.servers is missing"), line
    line = ways.failing(way, {"kafka.bootstrap.servers": broker.bootstrap_servers}).line
    wanted = "give exactly one of the options subscribe" if way in READS else "set the option topic"
    assert wanted in line, line


def test_a_column_is_missing_or_of_the_wrong_type(spark: SparkSession, broker: Broker) -> None:
    from pyspark_braidlog.errors import clear_error

    def refused(schema: str, row: tuple[object, ...]) -> str:
        frame = spark.createDataFrame([row], schema)
        options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "topic": TOPIC}
        with pytest.raises(Exception) as caught:
            frame.write.format("braidlog").options(**options).mode("append").save()
        return clear_error(caught.value)

    assert refused("key string", ("a",)).startswith("there is no column value")
    line = refused("value int", (1,))
    assert line.startswith("column value is int"), line


@pytest.mark.parametrize("trigger", [{"realTime": "5 seconds"}, {"continuous": "1 second"}], ids=str)
def test_triggers_that_spark_keeps_from_python_sources(
    spark: SparkSession, broker: Broker, tmp_path: Path, trigger: dict[str, str]
) -> None:
    frame = spark.readStream.format("braidlog").option("kafka.bootstrap.servers", broker.bootstrap_servers)
    writer = frame.option("subscribe", TOPIC).load().writeStream.format("console").outputMode("update")
    with pytest.raises(Exception, match=r"(?i)real-time mode|continuous") as refused:
        writer.option("checkpointLocation", str(tmp_path)).trigger(**trigger).start().awaitTermination()
    if "realTime" in trigger:
        assert clear_error(refused.value).startswith("Spark keeps real-time mode from Python data sources")
