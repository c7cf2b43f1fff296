"""DataFrames to topics: columns, refusals, and streams that are run again as after a crash."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from braidlog.testing import Broker
from pyspark_braidlog.errors import clear_error
from support.spark_file_stream import FileStream, Records

PARTITIONS = 3


@pytest.fixture
def topic(braidlog_broker: Broker) -> str:
    return braidlog_broker.create_topic(partitions=PARTITIONS)


@pytest.fixture
def records(braidlog_broker: Broker, topic: str) -> Records:
    return Records(braidlog_broker, topic, PARTITIONS)


@pytest.fixture
def stream(spark: Any, braidlog_broker: Broker, topic: str, tmp_path: Path) -> FileStream:
    return FileStream(spark, braidlog_broker, topic, tmp_path)


def save(frame: Any, broker: Broker, **options: str) -> None:
    servers = {"kafka.bootstrap.servers": broker.bootstrap_servers}
    frame.write.format("braidlog").mode("append").options(**{**servers, **options}).save()


def test_every_column_of_the_connector_arrives(
    spark: Any, braidlog_broker: Broker, topic: str, records: Records
) -> None:
    other = braidlog_broker.create_topic(partitions=1)
    frame = spark.sql(
        f"""SELECT * FROM VALUES
            ('{topic}', 2, 'k1', 'v1', array(named_struct('key', 'h', 'value', X'01')), 'left out'),
            ('{topic}', 0, NULL, NULL, NULL, 'left out'),
            ('{other}', NULL, 'k2', 'v2', array(), 'left out')
            AS t(topic, partition, key, value, headers, other)"""
    )
    save(frame, braidlog_broker)
    found = sorted(records.rows("partition", "key", "value", "headers"), key=lambda row: row["partition"])
    assert [(row["partition"], row["key"], row["value"]) for row in found] == [(0, None, None), (2, b"k1", b"v1")]
    assert [row["headers"] for row in found] == [[], [{"key": "h", "value": b"\x01"}]]
    assert Records(braidlog_broker, other, 1).values() == Counter(["v2"])
    # The option wins over the column.
    save(frame.where("key = 'k2'"), braidlog_broker, topic=topic)
    assert records.rows("key").count({"key": b"k2"}) == 1


@pytest.mark.parametrize(
    ("query", "options", "said"),
    [
        ("SELECT 1 AS key", {}, "there is no column value"),
        ("SELECT 1 AS value", {}, "column value is int, but has to be binary or string"),
        (
            "SELECT 'x' AS value",
            {"topic": "no-such", "kafka.allow.auto.create.topics": "false"},
            "topic no-such does not exist",
        ),
        ("SELECT 'x' AS value", {"delivery": "twice"}, "option delivery='twice' is not known"),
        ("SELECT 'x' AS value", {"kafka.value.serializer": "x"}, "kafka.value.serializer is not supported"),
        ("SELECT 'x' AS value", {"kafka.bootstrap.servers": "127.0.0.1:1"}, "no answer from kafka.bootstrap.servers"),
        ("SELECT 'x' AS value, 7 AS partition", {}, "row 0 names partition 7 of a topic that has 3"),
        ("SELECT 'x' AS value", {"delivery": "exactly-once"}, "needs the option sinkName"),
        (
            "SELECT 'x' AS value",
            {"delivery": "exactly-once", "sinkName": "x"},
            "needs the ids of a streaming query and its batch",
        ),
    ],
)
def test_what_cannot_be_written_is_refused(
    spark: Any, braidlog_broker: Broker, topic: str, query: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match=re.escape(said)):
        save(spark.sql(query), braidlog_broker, **{"topic": topic, **options})


def test_topics_are_not_overwritten(spark: Any, braidlog_broker: Broker, topic: str) -> None:
    writer = spark.sql("SELECT 'x' AS value").write.format("braidlog").mode("overwrite")
    options = {"kafka.bootstrap.servers": braidlog_broker.bootstrap_servers, "topic": topic}
    with pytest.raises(Exception, match="mode overwrite is not possible"):
        writer.options(**options).save()


def test_a_batch_that_runs_again_is_written_once(stream: FileStream, records: Records) -> None:
    stream.add("a", "b", "c")
    stream.run()
    assert len(stream.groups()) == 2
    stream.forget_last_commit()
    stream.run()
    assert records.values() == Counter("abc")
    stream.add("d")
    stream.run()
    assert records.values() == Counter("abcd")


def test_at_least_once_writes_it_again(stream: FileStream, records: Records) -> None:
    stream.add("a", "b")
    stream.run(delivery="at-least-once")
    stream.forget_last_commit()
    stream.run(delivery="at-least-once")
    assert records.values() == Counter("aabb")


def test_a_batch_that_is_recomputed_differently_is_refused_until_somebody_decides(
    stream: FileStream, records: Records
) -> None:
    stream.add("a", "b")
    stream.run()
    stream.forget_last_commit()
    with pytest.raises(Exception, match="batch 0 was recomputed differently"):
        stream.run(lambda rows: rows.selectExpr("concat(value, '!') AS value"))
    assert records.values() == Counter("ab")
    stream.run(recomputed="keep")
    stream.add("c")
    stream.run()
    assert records.values() == Counter("abc")


def counts(rows: Any) -> Any:
    return rows.groupBy("value").count().selectExpr("concat(value, count) AS value")


def test_output_mode_update_appends_what_changed_exactly_once(stream: FileStream, records: Records) -> None:
    stream.add("a", "a", "b")
    stream.run(counts, output_mode="update", for_each_batch=True)
    stream.forget_last_commit()
    stream.run(counts, output_mode="update", for_each_batch=True)
    assert records.values() == Counter(["a2", "b1"])
    stream.add("b", "c")
    stream.run(counts, output_mode="update", for_each_batch=True)
    assert records.values() == Counter(["a2", "b1", "b2", "c1"])


def test_output_mode_update_of_the_format_says_what_to_write_instead(stream: FileStream) -> None:
    stream.add("a")
    with pytest.raises(Exception, match="does not support Update mode") as refused:
        stream.run(counts, output_mode="update")
    assert ".foreachBatch(topic_sink(options)) instead" in clear_error(refused.value)


def test_a_batch_without_a_mode_says_what_to_write_instead(spark: Any, braidlog_broker: Broker, topic: str) -> None:
    writer = spark.sql("SELECT 'x' AS value").write.format("braidlog").option("topic", topic)
    with pytest.raises(Exception, match="ErrorIfExists") as refused:
        writer.option("kafka.bootstrap.servers", braidlog_broker.bootstrap_servers).save()
    assert 'add .mode("append")' in clear_error(refused.value)


def test_output_mode_complete_appends_the_whole_result(stream: FileStream, records: Records) -> None:
    stream.add("a", "a", "b")
    stream.run(counts, output_mode="complete")
    stream.add("b")
    stream.run(counts, output_mode="complete")
    assert records.values() == Counter(["a2", "b1", "a2", "b2"])


def test_an_old_checkpoint_is_refused(stream: FileStream, records: Records, tmp_path: Path) -> None:
    stream.add("a")
    stream.run()
    old = stream.saved(tmp_path / "old")
    for more in "bc":
        stream.add(more)
        stream.run()
    stream.restore(old)
    stream.add("d")
    with pytest.raises(Exception, match="an old checkpoint was restored"):
        stream.run()
    assert records.values() == Counter("abc")


def test_fewer_tasks_than_before_are_noticed(braidlog_broker: Broker, stream: FileStream, records: Records) -> None:
    lines = [str(number) for number in range(20)]
    stream.add(*lines)
    stream.run(tasks=4)
    # As if only tasks 2 and 3 had come to commit before the driver died.
    braidlog_broker.admin().delete_groups([each for each in stream.groups() if each[-1] in "01"]).raise_for_errors()
    stream.forget_last_commit()
    with pytest.raises(Exception, match="by 4 or more tasks before the query was started again, and by 2 now"):
        stream.run(tasks=2)
    stream.run(tasks=2, recomputed="keep")


def test_several_sinks_of_one_query_within_for_each_batch(
    spark: Any, braidlog_broker: Broker, topic: str, records: Records, tmp_path: Path
) -> None:
    other = braidlog_broker.create_topic(partitions=1)
    fail = [True]

    def write_both(frame: Any, batch: int) -> None:
        save(frame, braidlog_broker, topic=topic, delivery="exactly-once", sinkName="first")
        if fail.pop():
            raise ValueError("between the two")
        save(frame, braidlog_broker, topic=other, delivery="exactly-once", sinkName="second")

    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.txt").write_text("a\nb")

    def run() -> None:
        rows = spark.readStream.text(str(tmp_path / "in"))
        checkpoint = str(tmp_path / "checkpoint")
        writer = rows.writeStream.foreachBatch(write_both).option("checkpointLocation", checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(Exception, match="between the two"):
        run()
    fail.append(False)
    run()
    assert records.values() == Counter("ab")
    assert Records(braidlog_broker, other, 1).values() == Counter("ab")


def test_a_missing_topic_is_created_by_the_broker_or_as_the_options_say(
    spark: Any, braidlog_broker: Broker, stream: FileStream
) -> None:
    save(spark.sql("SELECT 'x' AS value"), braidlog_broker, topic="made-by-broker")
    assert Records(braidlog_broker, "made-by-broker", 1).values() == Counter("x")
    stream.add("a")
    stream.run(topic="made-by-sink", **{"topic.creation.default.partitions": "4"})
    assert Records(braidlog_broker, "made-by-sink", 4).values() == Counter("a")
