"""Where batches end, with a cluster that is a dictionary: what Spark is answered, and what the cluster is asked."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from braidlog import TopicPartition
from braidlog.client.arrow.reading import LogSample
from pyspark_braidlog.source.data_loss import DataLoss
from pyspark_braidlog.source.offset_range import OffsetRange
from pyspark_braidlog.source.offset_reader import ClusterUnavailable, MissingTopics
from pyspark_braidlog.source.options import ReadOptions
from pyspark_braidlog.source.stream_offset import StreamOffset, ranges
from pyspark_braidlog.source.stream_planning import StreamPlanner
from pyspark_braidlog.source.topics import ConsumerStrategy, Subscribe, TopicFacts

T0, T1, T2 = (TopicPartition("t", each) for each in range(3))
ALL = ReadAllAvailable()


class FakeCluster:
    """Topics with the first and the next offset of each partition; a `ClusterView` of all settings."""

    def __init__(self) -> None:
        self.ids = {"t": "id"}
        self.logs = {T0: (0, 10), T1: (0, 20)}
        self.committed = 4
        self.stable: dict[TopicPartition, int] = {}
        self.asked: list[str] = []
        # How often it will not answer, and how often it will not know of any topic.
        self.away = 0
        self.forgetful = 0
        self.views = 0

    def view(self, client: Mapping[str, str]) -> FakeView:
        self.views += 1
        return FakeView(self, client.get("isolation.level", ""))


class FakeView:
    def __init__(self, cluster: FakeCluster, isolation: str) -> None:
        self._cluster = cluster
        self._isolation = isolation

    def topics(self, consumer_strategy: ConsumerStrategy, *, missing_ok: bool = False) -> dict[str, TopicFacts]:
        self._cluster.asked.append("topics")
        if self._cluster.forgetful:
            self._cluster.forgetful -= 1
            return {}
        wanted = consumer_strategy.topics if isinstance(consumer_strategy, Subscribe) else tuple(self._cluster.ids)
        missing = [each for each in wanted if each not in self._cluster.ids]
        if missing and not missing_ok:
            raise MissingTopics("no such topic", missing)
        return {
            name: TopicFacts(each, tuple(sorted(place.partition for place in self._cluster.logs if place[0] == name)))
            for name, each in self._cluster.ids.items()
            if name in wanted
        }

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        partitions = list(partitions)
        if partitions:
            self._cluster.asked.append("earliest")
        return {each: self._log(each)[0] for each in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._cluster.asked.append("latest")
        if self._cluster.away:
            self._cluster.away -= 1
            raise ClusterUnavailable("no answer")
        stable = self._cluster.stable if self._isolation == "read_committed" else {}
        return {each: stable.get(each, self._log(each)[1]) for each in partitions}

    def log_ends(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self._cluster.asked.append("log ends")
        return {each: self._log(each)[1] for each in partitions}

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {T0: self._cluster.committed, T1: 20}

    def at_time(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        raise AssertionError

    def _log(self, place: TopicPartition) -> tuple[int, int]:
        if place not in self._cluster.logs:
            raise MissingTopics("gone", [place.topic])
        return self._cluster.logs[place]

    def samples(self, at: Mapping[TopicPartition, int]) -> dict[TopicPartition, LogSample]:
        self._cluster.asked.append("samples")
        return {place: LogSample(100.0, 1_000_000 + offset) for place, offset in at.items()}

    def close(self) -> None: ...


class World:
    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.now = 1000.0
        self.said: list[str] = []

    def planner(self, **options: str) -> StreamPlanner:
        given = {"kafka.bootstrap.servers": "a:1", "subscribe": "t", "startingOffsets": "earliest"} | {
            name.replace("kafka_", "kafka.").replace("isolation_level", "isolation.level"): value
            for name, value in options.items()
        }
        if "subscribePattern" in given:
            del given["subscribe"]
        return StreamPlanner(
            ReadOptions.for_stream(given),
            self.cluster.view,
            tell=self.said.append,
            now=lambda: self.now,
            pause=self.pause,
            wall=lambda: self.now + 500.0,
        )

    def pause(self, seconds: float) -> None:
        self.now += seconds

    def write(self, place: TopicPartition, count: int = 1) -> None:
        first, after = self.cluster.logs[place]
        self.cluster.logs[place] = (first, after + count)


@pytest.fixture
def world() -> World:
    return World()


def begun(planner: StreamPlanner) -> StreamOffset:
    """The end of the first batch."""
    return planner.next_end(planner.initial(), ALL)


# Where it begins


def test_the_first_batch_is_always_new_and_says_where_it_began(world: World) -> None:
    planner = world.planner(startingOffsets="latest")
    initial = planner.initial()
    end = planner.next_end(initial, ALL)
    assert end.written() != initial.written()
    assert end == StreamOffset({T0: 10, T1: 20}, {"t": "id"}, {T0: 10, T1: 20})
    assert ranges(initial, end) == []


def test_the_first_batch_is_new_also_where_there_are_no_partitions(world: World) -> None:
    planner = world.planner(subscribePattern="other.*", startingOffsets="latest")
    world.cluster.ids = {}
    initial = planner.initial()
    assert planner.next_end(initial, ALL).written() != initial.written()


def test_a_stream_begins_where_a_group_is_and_misses_what_was_deleted_since(world: World) -> None:
    planner = world.planner(startingOffsets="committed", groupId="g")
    end = begun(planner)
    assert ranges(planner.initial(), end) == [OffsetRange("t", 0, 4, 10, "id")]
    world.cluster.logs[T0] = (6, 10)
    with pytest.raises(DataLoss, match=r"t-0: the stream was to begin at offset 4, but the log begins at 6"):
        begun(world.planner(startingOffsets="committed", groupId="g"))
    world.cluster.committed = 11
    with pytest.raises(DataLoss, match=r"t-0: the stream was to begin at offset 11, but the log ends at 10"):
        begun(world.planner(startingOffsets="committed", groupId="g"))


def test_asked_twice_it_begins_at_the_same_place(world: World) -> None:
    planner = world.planner(startingOffsets="latest")
    first = planner.initial()
    world.write(T0)
    assert planner.initial() == first


def test_after_the_first_batch_nothing_new_is_the_same_offset(world: World) -> None:
    planner = world.planner()
    end = begun(planner)
    assert planner.next_end(end, ALL) is end
    world.write(T0)
    later = planner.next_end(end, ALL)
    assert later == StreamOffset({T0: 11, T1: 20}, {"t": "id"})
    assert planner.next_end(later, ALL) is later


def test_a_topic_that_is_not_there_is_a_mistake(world: World) -> None:
    with pytest.raises(MissingTopics):
        world.planner(subscribe="wrong").initial()


def test_a_topic_that_was_added_to_the_options_and_is_not_there_is_a_mistake(world: World) -> None:
    with pytest.raises(MissingTopics):
        world.planner(subscribe="t,wrong").next_end(StreamOffset({T0: 1, T1: 1}, {"t": "id"}), ALL)


# How far it goes


def test_at_most_so_many_offsets_until_what_is_available_now_is_read(world: World) -> None:
    planner = world.planner(maxOffsetsPerTrigger="12")
    planner.prepare_for_available_now()
    world.write(T0, 1000)
    position, batches = planner.initial(), 0
    while (end := planner.next_end(position, planner.own_limit)) != position:
        assert sum(each.size for each in ranges(position, end)) <= 12
        position, batches = end, batches + 1
    assert position.offsets == {T0: 10, T1: 20}
    assert batches == 3
    assert planner.report(position.offsets) == {"@lag": {"offsets": 0, "seconds": 0.0}, "t": {"0": 10, "1": 20}}


def test_available_now_does_not_wait_for_more(world: World) -> None:
    planner = world.planner(minOffsetsPerTrigger="1000", maxTriggerDelay="1h")
    start = planner.next_end(planner.initial(), planner.own_limit)
    world.write(T0)
    assert planner.next_end(start, planner.own_limit) == start
    planner.prepare_for_available_now()
    assert planner.next_end(start, planner.own_limit).offsets[T0] == 11


def test_available_now_does_not_see_new_partitions(world: World) -> None:
    planner = world.planner()
    planner.prepare_for_available_now()
    world.cluster.logs[T2] = (0, 5)
    assert begun(planner).offsets.get(T2, 0) == 0


def test_available_now_that_begins_after_its_goal_ends_at_once(world: World) -> None:
    planner = world.planner(startingOffsets="latest")
    planner.prepare_for_available_now()
    world.write(T0, 5)
    end = begun(planner)
    assert end.offsets == {T0: 15, T1: 20}
    assert planner.next_end(end, ALL) is end


def test_open_transactions_hold_a_stream_back_but_lose_nothing(world: World) -> None:
    planner = world.planner(kafka_isolation_level="read_committed")
    start = StreamOffset({T0: 10, T1: 20}, {"t": "id"})
    world.cluster.stable = {T0: 4}
    for _ in range(3):
        assert planner.next_end(start, ALL) is start
    # Spark asks a hundred times a second: not each time over a connection of its own.
    assert world.cluster.views == 1


# What changes meanwhile


def test_new_partitions_are_read_from_their_beginning(world: World) -> None:
    planner = world.planner(startingOffsets="latest")
    start = begun(planner)
    world.cluster.logs[T2] = (0, 5)
    world.now += 2
    end = planner.next_end(start, ALL)
    assert end == StreamOffset({T0: 10, T1: 20, T2: 5}, {"t": "id"}, {T2: 0})
    assert ranges(start, end) == [OffsetRange("t", 2, 0, 5, "id")]


def test_new_partitions_without_records_are_noted(world: World) -> None:
    planner = world.planner()
    start = begun(planner)
    world.cluster.logs[T2] = (0, 0)
    world.now += 2
    end = planner.next_end(start, ALL)
    assert end.offsets[T2] == 0
    assert planner.next_end(end, ALL) is end


def test_new_topics_of_a_pattern_are_read_from_their_beginning(world: World) -> None:
    planner = world.planner(subscribePattern=".*", startingOffsets="latest")
    start = begun(planner)
    world.cluster.ids["u"] = "new"
    world.cluster.logs[TopicPartition("u", 0)] = (0, 3)
    world.now += 2
    assert ranges(start, planner.next_end(start, ALL)) == [OffsetRange("u", 0, 0, 3, "new")]


def test_retention_ends_the_stream(world: World) -> None:
    planner = world.planner()
    start = begun(planner)
    world.cluster.logs[T0] = (50, 60)
    with pytest.raises(DataLoss, match=r"t-0: retention deleted 40 offsets \(10 to 49\)"):
        planner.next_end(start, ALL)


def test_or_it_goes_on_with_what_there_is_and_says_so_once(world: World) -> None:
    planner = world.planner(failOnDataLoss="false", minOffsetsPerTrigger="100", maxTriggerDelay="1h")
    start = planner.next_end(planner.initial(), planner.own_limit)
    world.cluster.logs[T0] = (50, 60)
    for _ in range(3):
        end = planner.next_end(start, ALL)
    assert len(world.said) == 1
    assert "goes on at 50" in world.said[0]
    assert ranges(start, end) == [OffsetRange("t", 0, 50, 60, "id")]


def test_truncation_ends_the_stream(world: World) -> None:
    planner = world.planner()
    start = begun(planner)
    world.cluster.logs[T1] = (0, 15)
    with pytest.raises(DataLoss, match="truncated"):
        planner.next_end(start, ALL)


def test_after_a_truncation_it_goes_on_at_the_end(world: World) -> None:
    planner = world.planner(failOnDataLoss="false")
    start = begun(planner)
    world.cluster.logs[T1] = (0, 15)
    end = planner.next_end(start, ALL)
    assert end.offsets[T1] == 15
    world.write(T1, 2)
    assert ranges(end, planner.next_end(end, ALL)) == [OffsetRange("t", 1, 15, 17, "id")]


def test_recreation_is_seen_though_the_topic_was_known_a_moment_ago(world: World) -> None:
    planner = world.planner()
    start = begun(planner)
    world.cluster.ids["t"] = "other"
    world.cluster.logs = {T0: (0, 1), T1: (0, 1)}
    with pytest.raises(DataLoss, match="created again"):
        planner.next_end(start, ALL)


def test_recreation_is_seen_when_the_new_topic_is_as_long(world: World) -> None:
    planner = world.planner(failOnDataLoss="false")
    start = begun(planner)
    world.cluster.ids["t"] = "other"
    world.now += 2
    end = planner.next_end(start, ALL)
    assert end.ids == {"t": "other"}
    assert ranges(start, end) == [OffsetRange("t", 0, 0, 10, "other"), OffsetRange("t", 1, 0, 20, "other")]


def test_deletion_ends_the_stream(world: World) -> None:
    planner = world.planner()
    start = begun(planner)
    world.cluster.ids, world.cluster.logs = {}, {}
    with pytest.raises(DataLoss, match="t-0 was deleted"):
        planner.next_end(start, ALL)


def test_or_the_rest_is_read(world: World) -> None:
    world.cluster.ids["u"] = "u"
    world.cluster.logs[TopicPartition("u", 0)] = (0, 3)
    planner = world.planner(subscribe="t,u", failOnDataLoss="false")
    start = begun(planner)
    del world.cluster.ids["u"], world.cluster.logs[TopicPartition("u", 0)]
    world.write(T0)
    assert planner.next_end(start, ALL) == StreamOffset({T0: 11, T1: 20}, {"t": "id"})


def test_deletion_during_available_now_ends_the_stream(world: World) -> None:
    planner = world.planner(maxOffsetsPerTrigger="4")
    planner.prepare_for_available_now()
    start = planner.next_end(planner.initial(), planner.own_limit)
    world.cluster.ids, world.cluster.logs = {}, {}
    with pytest.raises(DataLoss, match="t-0 was deleted"):
        planner.next_end(start, planner.own_limit)


def test_recreation_during_available_now_has_a_goal_of_its_own(world: World) -> None:
    planner = world.planner(failOnDataLoss="false")
    planner.prepare_for_available_now()
    start = StreamOffset({T0: 5, T1: 5}, {"t": "id"})
    world.cluster.ids, world.cluster.logs = {"t": "other"}, {T0: (0, 2), T1: (0, 3)}
    end = planner.next_end(start, planner.own_limit)
    assert ranges(start, end) == [OffsetRange("t", 0, 0, 2, "other"), OffsetRange("t", 1, 0, 3, "other")]
    world.write(T0)
    assert planner.next_end(end, planner.own_limit) is end


def test_a_broker_that_knows_of_no_topic_for_a_moment_deletes_none(world: World) -> None:
    """Else the topic would be read from its beginning when it is there again."""
    planner = world.planner(failOnDataLoss="false")
    start = begun(planner)
    world.write(T0)
    world.now += 10
    world.cluster.forgetful = 2
    assert planner.next_end(start, ALL) == StreamOffset({T0: 11, T1: 20}, {"t": "id"})
    assert world.said == []


# While brokers are away


def test_a_running_stream_waits_for_brokers_that_are_away(world: World) -> None:
    planner = world.planner()
    start = begun(planner)
    world.write(T0)
    world.cluster.away = 20
    assert planner.next_end(start, ALL).offsets == {T0: 11, T1: 20}
    assert len(world.said) == 2
    assert "waits for up to 60 s" in world.said[0]


@pytest.mark.parametrize(("options", "seconds"), [({}, 60), ({"kafka_default.api.timeout.ms": "3000"}, 3)])
def test_but_not_for_long(world: World, options: dict[str, str], seconds: float) -> None:
    planner = world.planner(**options)
    start = begun(planner)
    world.cluster.away = 1000
    before = world.now
    with pytest.raises(ClusterUnavailable):
        planner.next_end(start, ALL)
    assert seconds <= world.now - before <= seconds + 1


def test_a_stream_that_starts_does_not_wait(world: World) -> None:
    before = begun(world.planner())
    world.cluster.away = 1
    now = world.now
    with pytest.raises(ClusterUnavailable):
        world.planner().next_end(before, ALL)
    assert world.now == now


# What it costs


def test_while_nothing_comes_only_the_ends_are_asked_for(world: World) -> None:
    planner = world.planner()
    start = begun(planner)
    world.cluster.asked.clear()
    for _ in range(50):
        planner.next_end(start, ALL)
    assert world.cluster.asked == ["latest"] * 50


# What is reported


def test_a_report_says_what_there_is_and_how_far_behind_the_query_is(world: World) -> None:
    planner = world.planner(maxOffsetsPerTrigger="15")
    end = planner.next_end(planner.initial(), ReadMaxRows(15))
    assert end.offsets == {T0: 5, T1: 10}
    # The records' times are 1,000 s and their offset in milliseconds.
    assert planner.report(end.offsets) == {
        "@lag": {"offsets": 15, "seconds": 499.995},
        "t": {"0": 10, "1": 20},
    }


def test_after_a_restart_the_cluster_is_asked_for_the_report(world: World) -> None:
    """The batch that is tried again was planned by another process."""
    assert world.planner().report({T0: 10, T1: 15})["@lag"]["offsets"] == 5
    planner = world.planner()
    planner.prepare_for_available_now()
    world.write(T0, 100)
    assert planner.report({T0: 10, T1: 20}) == {"@lag": {"offsets": 0, "seconds": 0.0}, "t": {"0": 10, "1": 20}}
