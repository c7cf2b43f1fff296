"""Streams that are stopped or killed at the worst moments go on where they were, and read nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from braidlog import Admin, Producer, TopicPartition
from braidlog.testing import Broker
from support.eventually import eventually
from support.spark_driver import Batch, KillableDriver, Stream

_GROUP = "restarts"


def produce(broker: Broker, topic: str, values: range) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for each in values:
            producer.send(topic, str(each).encode(), partition=each % 2)


@pytest.fixture
def options(braidlog_broker: Broker) -> Callable[..., dict[str, str]]:
    def given(topic: str, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": braidlog_broker.bootstrap_servers, "subscribe": topic} | more

    return given


def read_on(spark: Any, options: dict[str, str], checkpoint: Path) -> dict[int, list[int]]:
    """By batch what a run from the checkpoint reads until there is no more."""
    found: dict[int, list[int]] = {}

    def take(rows: Any, batch: int) -> None:
        found[batch] = sorted(int(row.value) for row in rows.select("value").collect())

    writer = spark.readStream.format("braidlog").options(**options).load().writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return found


def is_done(checkpoint: Path, batch: int) -> bool:
    return (checkpoint / "commits" / str(batch)).exists()


@pytest.mark.timeout(300)
def test_killed_streams_go_on_where_they_were(
    spark: Any, braidlog_broker: Broker, options: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    idle, first, second = (braidlog_broker.create_topic(partitions=2) for _ in range(3))
    for topic in (idle, first):
        # Before "latest": must never be read.
        produce(braidlog_broker, topic, range(900, 910))
    produce(braidlog_broker, second, range(10))
    limited = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "4", "groupId": _GROUP}
    streams = [
        # Nothing has come yet when it dies.
        Stream("idle", options(idle), str(tmp_path / "idle")),
        # Dies when its first batch is planned, but not done.
        Stream("first", options(first), str(tmp_path / "first"), hold=0),
        # Dies within a later batch, with one before it done.
        Stream("second", options(second, **limited), str(tmp_path / "second"), hold=1),
    ]
    with KillableDriver(streams, tmp_path / "plan.json") as driver:
        seen: dict[tuple[str, int], Batch] = {}
        while len([each for each in seen.values() if each.is_held]) < 2:
            batch = driver.next_batch()
            seen[batch.name, batch.batch] = batch
        eventually(lambda: is_done(tmp_path / "idle", 0), 120)
        driver.kill()
    assert not is_done(tmp_path / "first", 0)
    assert not is_done(tmp_path / "second", 1)
    with Admin(bootstrap_servers=braidlog_broker.bootstrap_servers) as admin:
        shown = admin.list_group_offsets([_GROUP])[_GROUP]
    assert {place: each.offset for place, each in shown.items()} == {TopicPartition(second, each): 2 for each in (0, 1)}

    for topic in (idle, first, second):
        produce(braidlog_broker, topic, range(100, 104))
    assert read_on(spark, options(idle), tmp_path / "idle") == {1: [100, 101, 102, 103]}
    assert read_on(spark, options(first), tmp_path / "first") == {0: [], 1: [100, 101, 102, 103]}
    rest = read_on(spark, options(second, **limited), tmp_path / "second")
    # The batch that was held is the same batch, whatever came meanwhile.
    assert rest[1] == seen["second", 1].values
    assert sorted(sum(rest.values(), seen["second", 0].values)) == [*range(10), *range(100, 104)]


@pytest.mark.timeout(300)
def test_a_stream_that_was_stopped_before_anything_came_reads_what_comes_meanwhile(
    spark: Any, braidlog_broker: Broker, options: Callable[..., dict[str, str]], tmp_path: Path
) -> None:
    topic = braidlog_broker.create_topic(partitions=2)
    produce(braidlog_broker, topic, range(900, 910))
    reader = spark.readStream.format("braidlog").options(**options(topic))
    writer = reader.load().writeStream.foreachBatch(lambda rows, batch: None)
    query = writer.option("checkpointLocation", str(tmp_path / "stream")).start()
    eventually(lambda: is_done(tmp_path / "stream", 0), 120)
    query.stop()
    produce(braidlog_broker, topic, range(4))
    assert read_on(spark, options(topic), tmp_path / "stream") == {1: [0, 1, 2, 3]}
    assert read_on(spark, options(topic), tmp_path / "stream") == {}
