"""`braidlog pipeline` and real Spark: replays that read again what was asked for, and runs that stop cleanly."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from braidlog.cli.program import main
from braidlog.testing import Broker
from pyspark_braidlog.errors import clear_error


def put(broker: Broker, topic: str, values: range) -> None:
    producer = broker.producer()
    for number in values:
        producer.send(topic, value=b"%d" % number, partition=0)
    producer.flush()


def reading(spark: Any, broker: Broker, topic: str) -> Any:
    return (
        spark.readStream.format("braidlog")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )


def finish(writer: Any, checkpoint: Path) -> Any:
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


def values_of(broker: Broker, topic: str) -> list[int]:
    """What readers that want committed records see."""
    consumer = broker.consumer(**{"isolation.level": "read_committed", "auto.offset.reset": "earliest"})
    from braidlog import TopicPartition

    places = [TopicPartition(topic, 0)]
    consumer.assign(places)
    consumer.seek_to_beginning(places)
    end = consumer.end_offsets(places)[places[0]]
    found: list[int] = []
    while consumer.position(places[0]) < end:
        found += [int(record.value) for record in consumer.poll(timeout=5.0)]
    return found


def test_a_query_without_state_reads_again_into_an_exactly_once_topic(
    spark: Any, braidlog_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = braidlog_broker.create_topic(), braidlog_broker.create_topic()
    put(braidlog_broker, source, range(6))
    checkpoint = tmp_path / "checkpoint"

    def run() -> None:
        writer = (
            reading(spark, braidlog_broker, source)
            .select("value")
            .writeStream.format("braidlog")
            .option("kafka.bootstrap.servers", braidlog_broker.bootstrap_servers)
            .option("topic", target)
        )
        finish(writer, checkpoint)

    run()
    assert values_of(braidlog_broker, target) == [0, 1, 2, 3, 4, 5]

    words = ["--bootstrap", braidlog_broker.bootstrap_servers, "--output", "json"]
    assert main(["pipeline", "lag", str(tmp_path), *words]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["topic"], row["position"], row["lag"]) == (source, 6, 0)

    replay = ["pipeline", "replay", str(checkpoint), "--topic", source, "--to-offset", "4", "--force", *words]
    assert main(replay) == 0
    assert not list(tmp_path.glob("checkpoint.before-replay-*"))
    assert main([*replay, "--execute"]) == 0
    assert len(list(tmp_path.glob("checkpoint.before-replay-*"))) == 1
    put(braidlog_broker, source, range(6, 7))
    run()
    # 4 and 5 again, as asked, and nothing else twice; the sink did not take them for an old batch.
    assert values_of(braidlog_broker, target) == [0, 1, 2, 3, 4, 5, 4, 5, 6]
    run()
    assert values_of(braidlog_broker, target) == [0, 1, 2, 3, 4, 5, 4, 5, 6]


def test_a_query_with_state_begins_anew(
    spark: Any, braidlog_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = braidlog_broker.create_topic()
    put(braidlog_broker, topic, range(5))
    checkpoint = tmp_path / "checkpoint"
    counts: list[int] = []

    def run() -> str:
        totals = reading(spark, braidlog_broker, topic).groupBy().count()
        writer = totals.writeStream.outputMode("complete").foreachBatch(
            lambda rows, _: counts.extend(row["count"] for row in rows.collect())
        )
        return str(finish(writer, checkpoint).id)

    first = run()
    assert counts[-1] == 5
    words = ["--bootstrap", braidlog_broker.bootstrap_servers, "--force", "--execute"]
    assert main(["pipeline", "replay", str(checkpoint), "--to-offset", "3", *words]) == 1
    assert "--drop-state" in capsys.readouterr().err
    assert main(["pipeline", "replay", str(checkpoint), "--to-offset", "3", "--drop-state", *words]) == 0
    second = run()
    # Two records were read, into a state that knew nothing; not five and two.
    assert counts[-1] == 2
    assert second != first


def test_named_sources_are_replayed_by_their_name(
    spark: Any, braidlog_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = braidlog_broker.create_topic()
    put(braidlog_broker, topic, range(4))
    checkpoint = tmp_path / "checkpoint"
    seen: list[tuple[str, int]] = []

    def source(name: str) -> Any:
        rows = spark.readStream.name(name).format("braidlog").option("subscribe", topic)
        rows = rows.option("kafka.bootstrap.servers", braidlog_broker.bootstrap_servers)
        return rows.option("startingOffsets", "earliest").load().selectExpr(f"'{name}' AS name", "offset")

    def run(*names: str) -> None:
        both = source(names[0]).union(source(names[1]))
        writer = both.writeStream.foreachBatch(lambda rows, _: seen.extend(map(tuple, rows.collect())))
        finish(writer, checkpoint)

    spark.conf.set("spark.sql.streaming.queryEvolution.enableSourceEvolution", "true")
    try:
        run("first", "second")
        assert sorted(seen) == [(name, offset) for name in ("first", "second") for offset in range(4)]
        words = ["--bootstrap", braidlog_broker.bootstrap_servers, "--output", "json"]
        assert main(["pipeline", "lag", str(checkpoint), *words]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert [(row["source"], row["lag"]) for row in rows] == [("first", 0), ("second", 0)]
        replay = ["pipeline", "replay", str(checkpoint), "--source", "second", "--to-offset", "3", "--force"]
        assert main([*replay, "--execute", *words]) == 0
        seen.clear()
        # Names tell sources apart, in whatever order the query has them.
        run("second", "first")
    finally:
        spark.conf.unset("spark.sql.streaming.queryEvolution.enableSourceEvolution")
    assert seen == [("second", 3)]


def test_spark_errors_become_a_sentence(spark: Any, braidlog_broker: Broker, tmp_path: Path) -> None:
    query = reading(spark, braidlog_broker, "nope").writeStream.format("noop").start()
    with pytest.raises(Exception, match="nope") as streaming:
        query.awaitTermination()
    assert clear_error(streaming.value).startswith("topic nope does not exist at ")
    with pytest.raises(Exception, match="Traceback") as planning:
        spark.read.format("braidlog").option("kafka.bootstrap.servers", "127.0.0.1:1").load()
    assert clear_error(planning.value).startswith("nothing says what to read; give exactly one of ")
    with pytest.raises(Exception, match="checkpoint") as nowhere:
        reading(spark, braidlog_broker, "nope").writeStream.format("parquet").start(str(tmp_path / "out"))
    assert "--checkpoints DIR" in clear_error(nowhere.value)
    with pytest.raises(Exception, match="missing_column") as wrong:
        spark.range(1).select("missing_column")
    assert "\n" not in clear_error(wrong.value)
    assert clear_error(wrong.value).startswith("A column")


PIPELINE = """
def pipeline(spark):
    records = (spark.readStream.format("braidlog").option("kafka.bootstrap.servers", {bootstrap!r})
               .option("subscribe", {topic!r}).option("startingOffsets", "earliest")
               .option("groupId", {group!r}).load())
    return {{"kept": records.select("value").writeStream.format("parquet").option("path", {out!r})}}
"""


def test_a_file_runs_until_it_is_told_to_stop(tmp_path: Path) -> None:
    with Broker(kind="process") as broker:
        topic = broker.create_topic()
        put(broker, topic, range(10))
        file = tmp_path / "keep.py"
        file.write_text(
            PIPELINE.format(bootstrap=broker.bootstrap_servers, topic=topic, group="keepers", out=str(tmp_path / "out"))
        )
        checkpoints = tmp_path / "checkpoints"
        words = ["pipeline", "run", str(file), "--master", "local[2]", "--checkpoints", str(checkpoints)]
        program = [sys.executable, "-m", "braidlog", *words, "--output", "json"]
        running = subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            deadline = time.monotonic() + 240
            while not list(checkpoints.glob("kept/commits/0")) and running.poll() is None:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            replay = ["pipeline", "replay", str(checkpoints), "--to-earliest"]
            refused = subprocess.run(
                [sys.executable, "-m", "braidlog", *replay, "--bootstrap", broker.bootstrap_servers],
                capture_output=True,
                text=True,
                check=False,
            )
            assert (refused.returncode, "the query is running (process" in refused.stderr) == (1, True)
            running.send_signal(signal.SIGTERM)
            out, err = running.communicate(timeout=120)
        finally:
            if running.poll() is None:
                os.kill(running.pid, signal.SIGKILL)
        assert (running.returncode, err) == (0, "")
        (row,) = json.loads(out)
        assert (row["query"], row["rows"], row["lag"]) == ("kept", 10, 0)
        assert Path(row["checkpoint"]) == checkpoints / "kept"
