"""Topics as streams in real Spark: limits, progress that others see, partitions that come, records that go."""

from __future__ import annotations

import itertools
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from braidlog import Admin, Consumer, Producer, TopicPartition
from braidlog.client.admin.topics import NewTopic
from braidlog.testing import Broker
from pyspark_braidlog.jobs.running import QueryMonitor
from pyspark_braidlog.source.progress_listener import ProgressListener
from support.eventually import eventually


class Scene:
    """A topic of two partitions, and streams on it."""

    def __init__(self, spark: Any, broker: Broker, admin: Admin, directory: Path) -> None:
        self._spark = spark
        self._broker = broker
        self.admin = admin
        self.directory = directory
        self.topic = broker.create_topic(partitions=2)
        self.batches: dict[int, list[int]] = {}

    @property
    def bootstrap(self) -> str:
        return self._broker.bootstrap_servers

    def produce(self, values: range, topic: str = "", partitions: int = 2) -> None:
        with Producer(bootstrap_servers=self._broker.bootstrap_servers) as producer:
            for each in values:
                producer.send(topic or self.topic, str(each).encode(), partition=each % partitions)

    def options(self, **more: str) -> dict[str, str]:
        given = {"kafka.bootstrap.servers": self._broker.bootstrap_servers, "startingOffsets": "earliest"} | more
        return given if "subscribePattern" in given else given | {"subscribe": self.topic}

    def start(self, checkpoint: str, trigger: dict[str, Any] | None = None, **options: str) -> Any:
        self.batches = batches = {}

        def take(rows: Any, batch: int) -> None:
            batches[batch] = sorted(int(row.value) for row in rows.select("value").collect())

        reader = self._spark.readStream.format("braidlog").options(**self.options(**options))
        writer = reader.load().writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(self.directory / checkpoint))
        return (writer.trigger(**trigger) if trigger else writer).start()

    def run(self, checkpoint: str, **options: str) -> dict[int, list[int]]:
        """All that is available now, by batch."""
        assert self.start(checkpoint, {"availableNow": True}, **options).awaitTermination(120)
        return self.batches

    def failure(self, checkpoint: str, **options: str) -> str:
        """What a run ends with."""
        with pytest.raises(Exception, match="braidlog") as caught:
            self.run(checkpoint, **options)
        return str(caught.value)

    @property
    def values(self) -> list[int]:
        return sorted(itertools.chain(*self.batches.values()))

    def committed(self, group: str) -> dict[int, int]:
        offsets = self.admin.list_group_offsets([group])[group]
        return {place.partition: each.offset for place, each in offsets.items() if place.topic == self.topic}


@pytest.fixture
def scene(spark: Any, braidlog_broker: Broker, tmp_path: Path) -> Iterator[Scene]:
    with Admin(bootstrap_servers=braidlog_broker.bootstrap_servers) as admin:
        scene = Scene(spark, braidlog_broker, admin, tmp_path)
        yield scene
        for query in spark.streams.active:
            query.stop()


@pytest.mark.timeout(300)
def test_available_now_reads_in_limited_batches_and_shows_the_last_one_too(scene: Scene) -> None:
    scene.produce(range(20))
    batches = scene.run("stream", maxOffsetsPerTrigger="8", groupId="limited")
    assert [len(each) for each in batches.values()] == [8, 8, 4]
    assert scene.values == list(range(20))
    assert scene.committed("limited") == {0: 10, 1: 10}
    # With fewer than it may wait for: now is now.
    scene.produce(range(20, 23))
    assert scene.run("stream", minOffsetsPerTrigger="10", maxTriggerDelay="1h", groupId="limited") == {3: [20, 21, 22]}
    assert scene.committed("limited") == {0: 12, 1: 11}


@pytest.mark.timeout(300)
def test_available_now_reads_about_so_many_bytes_at_a_time(scene: Scene) -> None:
    with Producer(bootstrap_servers=scene.bootstrap, linger_ms=0, batch_size=5000) as producer:
        for each in range(400):
            # Ten times larger in the second half.
            value = str(each).rjust(1000 if each < 200 else 10_000).encode()
            producer.send(scene.topic, value, partition=each % 2)
    query = scene.start("stream", {"availableNow": True}, maxBytesPerTrigger="200kb", groupId="bytes")
    assert query.awaitTermination(120)
    batches = scene.batches
    assert scene.values == list(range(400))
    sizes = [sum(1000 if each < 200 else 10_000 for each in values) for values in batches.values()]
    assert len(sizes) >= 8
    assert max(sizes) <= 2.3 * 200 * 1024
    assert sum(size >= 100 * 1024 for size in sizes) >= 8
    assert scene.committed("bytes") == {0: 200, 1: 200}
    # Each batch reports what it left, and how old that is.
    lags = [json.loads(each["sources"][0]["latestOffset"])["@lag"] for each in query.recentProgress]
    left = [400 - sum(map(len, list(batches.values())[: number + 1])) for number in range(len(batches))]
    assert [each["offsets"] for each in lags[: len(left)]] == left
    assert all(0 < each["seconds"] < 300 for each in lags[: len(left) - 1])
    assert lags[-1] == {"offsets": 0, "seconds": 0.0}


@pytest.mark.timeout(300)
def test_a_run_that_only_tries_a_batch_again_has_a_lag(scene: Scene) -> None:
    scene.produce(range(6))
    scene.run("stream", groupId="again")
    # As after a crash before the batch was written down as done.
    for each in (scene.directory / "stream" / "commits").iterdir():
        each.unlink()
    query = scene.start("stream", {"availableNow": True}, groupId="again")
    watch = QueryMonitor([query], lambda _: None)
    assert watch.run(threading.Event()) is None
    assert scene.values == list(range(6))
    # Spark did not ask the source how much there is.
    assert [each["sources"][0]["latestOffset"] for each in query.recentProgress] == ["null"]
    assert (watch.batches[query.id], watch.rows[query.id], watch.lag(query.id)) == (1, 6, 0)


@pytest.mark.timeout(300)
def test_streams_and_batches_begin_where_a_group_is(scene: Scene, spark: Any) -> None:
    scene.produce(range(20))
    scene.admin.alter_group_offsets("readers", {TopicPartition(scene.topic, 0): 8}).raise_for_errors()
    begin = {"startingOffsets": "committed", "groupId": "readers"}
    reported = (
        f"group readers has committed nothing for {scene.topic}-1; set startingOffsetsFallback=earliest or latest"
    )
    assert reported in scene.failure("stream", **begin)
    options = scene.options(**begin, startingOffsetsFallback="earliest")
    rows = spark.read.format("braidlog").options(**options).load().collect()
    unread = [16, 18, *range(1, 20, 2)]
    assert sorted(int(row.value) for row in rows) == sorted(unread)
    # A batch shows no progress.
    assert scene.committed("readers") == {0: 8}
    scene.run("other", startingOffsets="committed", startingGroupId="readers", startingOffsetsFallback="latest")
    assert scene.values == [16, 18]
    assert scene.committed("readers") == {0: 8}
    scene.run("stream", **begin, startingOffsetsFallback="earliest")
    assert scene.values == sorted(unread)
    assert scene.committed("readers") == {0: 10, 1: 10}
    # From then on the checkpoint counts.
    scene.admin.alter_group_offsets("readers", {TopicPartition(scene.topic, 0): 0}).raise_for_errors()
    scene.produce(range(20, 22))
    scene.run("stream", **begin)
    assert scene.values == [20, 21]


@pytest.mark.timeout(300)
def test_a_running_stream_shows_its_progress_and_takes_in_what_is_new(scene: Scene) -> None:
    scene.produce(range(900, 910))
    query = scene.start("stream", subscribePattern=f"{scene.topic}.*", startingOffsets="latest", groupId="running")
    eventually(lambda: scene.committed("running") == {0: 5, 1: 5}, 120)
    scene.produce(range(4))
    eventually(lambda: scene.committed("running") == {0: 7, 1: 7}, 120)
    (source,) = query.lastProgress.sources
    assert json.loads(source.latestOffset)[scene.topic] == {"0": 7, "1": 7}

    scene.admin.create_partitions({scene.topic: 3}).raise_for_errors()
    added = f"{scene.topic}.more"
    scene.admin.create_topics([NewTopic(added, partitions=1)]).raise_for_errors()
    scene.produce(range(5, 6), partitions=3)
    scene.produce(range(10, 12), added, partitions=1)
    eventually(lambda: {5, 10, 11} <= set(scene.values), 120)
    query.stop()
    assert scene.values == [0, 1, 2, 3, 5, 10, 11]


@pytest.mark.timeout(300)
def test_a_listener_shows_also_what_spark_does_not_tell_the_source(spark: Any, scene: Scene) -> None:
    scene.produce(range(20))
    listener = ProgressListener(scene.options(groupId="listened"))
    spark.streams.addListener(listener)
    try:
        # All in one batch, whatever the limit, and no question after it.
        query = scene.start("stream", {"once": True}, maxOffsetsPerTrigger="8", groupId="alone")
        assert query.awaitTermination(120)
        assert len(scene.batches) == 1
        eventually(lambda: scene.committed("listened") == {0: 10, 1: 10}, 60)
        assert scene.committed("alone") == {0: 0, 1: 0}
        # Nor is there one before the next tick.
        scene.produce(range(20, 24))
        query = scene.start("stream", {"processingTime": "1 hour"}, groupId="alone")
        eventually(lambda: scene.committed("listened") == {0: 12, 1: 12}, 120)
        assert scene.committed("alone") == {0: 10, 1: 10}
        query.stop()
    finally:
        spark.streams.removeListener(listener)


@pytest.mark.timeout(300)
def test_batches_without_records_reach_state_and_sink(spark: Any, scene: Scene, braidlog_broker: Broker) -> None:
    """The first, which writes down where the stream begins, and one by which only the watermark moves."""
    target = braidlog_broker.create_topic()
    servers = {"kafka.bootstrap.servers": braidlog_broker.bootstrap_servers}

    def copied() -> list[int]:
        rows = spark.readStream.format("braidlog").options(**scene.options(startingOffsets="latest")).load()
        rows = rows.withWatermark("timestamp", "0 seconds").dropDuplicates(["value", "timestamp"]).select("value")
        writer = rows.writeStream.format("braidlog").options(**servers, topic=target)
        writer = writer.option("checkpointLocation", str(scene.directory / "copy")).trigger(availableNow=True)
        assert writer.start().awaitTermination(120)
        written = spark.read.format("braidlog").options(**servers, subscribe=target).load().collect()
        return sorted(int(row.value) for row in written)

    assert copied() == []
    scene.produce(range(10))
    assert copied() == list(range(10))


@pytest.mark.timeout(300)
def test_a_group_with_consumers_is_refused(scene: Scene, braidlog_broker: Broker) -> None:
    with Consumer(bootstrap_servers=braidlog_broker.bootstrap_servers, group_id="taken") as consumer:
        consumer.subscribe([scene.topic])
        while not consumer.assignment():
            consumer.poll(0.1)
        failure = scene.failure("stream", groupId="taken")
    assert "consumers are at work in group taken" in failure


@pytest.mark.timeout(600)
def test_losses_are_told_apart_and_can_be_passed_over(scene: Scene) -> None:
    scene.produce(range(20))
    scene.run("stream")
    other = scene.topic

    def after(loss: str) -> str:
        shutil.copytree(scene.directory / "stream", scene.directory / loss)
        return loss

    scene.produce(range(20, 30))
    scene.admin.delete_records({TopicPartition(other, 0): 13}).raise_for_errors()
    assert f"{other}-0: retention deleted 3 offsets (10 to 12)" in scene.failure(after("retention"))

    scene.admin.delete_topics([other]).raise_for_errors()
    scene.admin.create_topics([NewTopic(other, partitions=2)]).raise_for_errors()
    scene.produce(range(100, 104))
    assert f"{other}-0: the topic was deleted and created again" in scene.failure(after("recreation"))
    assert scene.run("recreation", failOnDataLoss="false") == {1: [100, 101, 102, 103]}
