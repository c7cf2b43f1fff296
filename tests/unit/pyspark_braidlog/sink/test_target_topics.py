"""Topics are looked for before they are written to, and not for every batch again."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from braidlog.core.errors import UserError
from braidlog.testing import Broker
from pyspark_braidlog.sink.columns import Columns
from pyspark_braidlog.sink.options import Delivery, WriteOptions
from pyspark_braidlog.sink.target_topics import TargetTopics
from pyspark_braidlog.source.topics import ConsumerStrategy, Subscribe, SubscribePattern


class Cluster:
    def __init__(self, *topics: str) -> None:
        self.topics = set(topics)
        self.asked: list[str] = []
        self.questions = 0
        self.now = 0.0
        self.targets = TargetTopics(self._ask, lambda: self.now)

    def _ask(self, options: WriteOptions, consumer_strategy: ConsumerStrategy) -> None:
        assert isinstance(consumer_strategy, (Subscribe, SubscribePattern))
        wanted = consumer_strategy.topics if isinstance(consumer_strategy, Subscribe) else ("any",)
        self.asked += wanted
        self.questions += 1
        if not self.topics.issuperset(wanted):
            raise UserError("does not exist")


def options(topic: str | None) -> WriteOptions:
    given = {"kafka.bootstrap.servers": "h:1"} | ({"topic": topic} if topic else {})
    return WriteOptions.checked(given, Delivery.AT_LEAST_ONCE)


def test_what_was_there_a_moment_ago_is_there() -> None:
    cluster = Cluster("a", "b")
    for topic in ("a", "b", "a", "b"):
        cluster.targets.check(options(topic))
    assert cluster.asked == ["a", "b"]
    cluster.now = 100.0
    cluster.targets.check(options("a"))
    assert cluster.asked == ["a", "b", "a"]


def test_what_was_missing_is_asked_for_again() -> None:
    cluster = Cluster()
    for _ in range(2):
        with pytest.raises(UserError):
            cluster.targets.check(options("a"))
    cluster.topics.add("a")
    cluster.targets.check(options("a"))
    assert len(cluster.asked) == 3


def test_without_a_topic_the_cluster_is_asked_all_the_same() -> None:
    cluster = Cluster("any")
    cluster.targets.check(options(None))
    assert cluster.asked == ["any"]


def test_topics_of_rows_are_looked_for_once_each() -> None:
    cluster = Cluster("a", "b")
    columns = Columns(None, key=False, headers=False, partition=False)

    def batches(*topics: list[str | None]) -> list[pa.RecordBatch]:
        return [
            pa.RecordBatch.from_arrays([pa.array(["v"] * len(some)), pa.array(some, pa.string())], ["value", "topic"])
            for some in topics
        ]

    given = batches(["a", "b", "a"], ["b", None])
    assert list(cluster.targets.checked(options(None), columns, iter(given))) == given
    assert sorted(cluster.asked) == ["a", "b"]
    assert cluster.questions == 1
    with pytest.raises(UserError):
        list(cluster.targets.checked(options(None), columns, iter(batches(["c"]))))
    # The option says where to, and was looked for by the driver.
    fixed = Columns("a", key=False, headers=False, partition=False)
    assert list(cluster.targets.checked(options("a"), fixed, iter(batches(["zzz"]))))


@pytest.fixture(scope="module", params=["true", "false"])
def broker(request: pytest.FixtureRequest) -> Iterator[tuple[Broker, bool]]:
    with Broker(settings={"auto.create.topics.enable": request.param, "num.partitions": "2"}) as running:
        yield running, request.param == "true"


def write_options(broker: Broker, **more: str) -> WriteOptions:
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, **more}
    return WriteOptions.checked(given, Delivery.AT_LEAST_ONCE)


def partitions(broker: Broker, topic: str) -> int:
    return {each.name: each.partitions for each in broker.admin().list_topics()}.get(topic, 0)


def test_a_missing_topic_is_created_where_the_brokers_do_that(broker: tuple[Broker, bool]) -> None:
    running, creates = broker
    wanted = write_options(running, topic="by.broker")
    if creates:
        TargetTopics().check(wanted)
        assert partitions(running, "by.broker") == 2
    else:
        with pytest.raises(UserError, match="create it first, correct the name, or set the option topic"):
            TargetTopics().check(wanted)
        assert partitions(running, "by.broker") == 0


def test_a_missing_topic_is_created_as_the_options_say(broker: tuple[Broker, bool]) -> None:
    running, _ = broker
    more = {"topic.creation.default.partitions": "5", "topic.creation.default.replication.factor": "1"}
    for _attempt in range(2):
        TargetTopics().check(write_options(running, topic="by.options", **more))
    assert partitions(running, "by.options") == 5
    columns = Columns(None, key=False, headers=False, partition=False)
    rows = pa.RecordBatch.from_pydict({"value": ["v"], "topic": ["by.row"]})
    assert list(TargetTopics().checked(write_options(running, **more), columns, iter([rows]))) == [rows]
    assert partitions(running, "by.row") == 5
    too_many = {**more, "topic.creation.default.replication.factor": "3"}
    with pytest.raises(UserError, match="eplication"):
        TargetTopics().check(write_options(running, topic="nowhere", **too_many))


def test_a_missing_topic_is_not_created_where_the_options_forbid_it(broker: tuple[Broker, bool]) -> None:
    running, _ = broker
    with pytest.raises(UserError, match="topic forbidden does not exist"):
        TargetTopics().check(write_options(running, topic="forbidden", **{"kafka.allow.auto.create.topics": "false"}))
    assert partitions(running, "forbidden") == 0
