"""Topics are looked for before they are written to, and not for every batch again."""

from __future__ import annotations

import pyarrow as pa
import pytest

from braidlog.core.errors import UserError
from pyspark_braidlog.sink.columns import Columns
from pyspark_braidlog.sink.options import Delivery, WriteOptions
from pyspark_braidlog.sink.target import Targets
from pyspark_braidlog.source.topics import Choice, Subscribe, SubscribePattern


class Cluster:
    def __init__(self, *topics: str) -> None:
        self.topics = set(topics)
        self.asked: list[str] = []
        self.questions = 0
        self.now = 0.0
        self.targets = Targets(self._ask, lambda: self.now)

    def _ask(self, options: WriteOptions, choice: Choice) -> None:
        assert isinstance(choice, (Subscribe, SubscribePattern))
        wanted = choice.topics if isinstance(choice, Subscribe) else ("any",)
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
