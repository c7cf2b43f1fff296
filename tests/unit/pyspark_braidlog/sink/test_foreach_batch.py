"""The function for `foreachBatch`: what it takes, and how it names what it writes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from braidlog.core.errors import UserError
from pyspark_braidlog.sink.foreach_batch import sink_name_of, topic_sink

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}


class FakeWriter:
    """A batch and its writer; remembers what it was told."""

    def __init__(self) -> None:
        self.reported: dict[str, Any] = {}

    @property
    def write(self) -> FakeWriter:
        return self

    def format(self, name: str) -> FakeWriter:
        self.reported["format"] = name
        return self

    def mode(self, name: str) -> FakeWriter:
        self.reported["mode"] = name
        return self

    def options(self, **options: str) -> FakeWriter:
        self.reported["options"] = options
        return self

    def save(self) -> None:
        self.reported["saved"] = True


def written(options: dict[str, str]) -> dict[str, Any]:
    batch: Any = FakeWriter()
    topic_sink(options)(batch, 7)
    reported: dict[str, Any] = batch.reported
    return reported


def test_a_batch_is_appended_exactly_once_under_the_name_of_its_topic() -> None:
    reported = written({**SERVERS, "topic": "totals"})
    assert (reported["format"], reported["mode"], reported["saved"]) == ("braidlog", "append", True)
    assert reported["options"] == {**SERVERS, "topic": "totals", "delivery": "exactly-once", "sinkname": "totals"}


def test_options_win() -> None:
    reported = written({**SERVERS, "Topic": "totals", "Delivery": "at-least-once", "sinkName": "mine"})
    assert reported["options"] == {**SERVERS, "topic": "totals", "delivery": "at-least-once", "sinkname": "mine"}


def test_mistakes_are_told_at_once() -> None:
    with pytest.raises(UserError, match=re.escape("kafka.bootstrap.servers is missing")):
        topic_sink({"topic": "totals"})


def test_names_of_sinks_are_as_different_as_their_topics() -> None:
    topics = ["a.b", "a_b", "a-b", "x" * 64, "x" * 65, "x" * 66, None]
    names = [sink_name_of(each) for each in topics]
    assert len(set(names)) == len(topics)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", each) for each in names)
