"""What the listener makes of the events that Spark sends about queries."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from braidlog import TopicPartition
from braidlog.core.errors import UserError
from pyspark_braidlog.source.progress_listener import ProgressListener
from pyspark_braidlog.source.stream_offset import StreamOffset

T0 = TopicPartition("t", 0)
OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t", "groupId": "job"}


class Shown:
    """A `GroupProgress` that remembers."""

    def __init__(self) -> None:
        self.offsets: list[dict[TopicPartition, int]] = []
        self.refusal: UserError | None = None

    def show(self, offsets: dict[TopicPartition, int]) -> None:
        if self.refusal:
            raise self.refusal
        self.offsets.append(offsets)


def event(*ends: str | None, name: str | None = None) -> Any:
    sources = [SimpleNamespace(endOffset=each) for each in ends]
    return SimpleNamespace(progress=SimpleNamespace(name=name, sources=sources))


def listener(shown: Shown, said: list[str] | None = None, query: str | None = None) -> ProgressListener:
    return ProgressListener(OPTIONS, query, progress=shown, tell=[].append if said is None else said.append)  # type: ignore[arg-type]


AT_5 = json.dumps(StreamOffset({T0: 5, TopicPartition("u", 0): 9}, {"t": "id"}).written())


def test_what_the_options_choose_is_shown() -> None:
    shown = Shown()
    listener(shown).onQueryProgress(event(AT_5))
    assert shown.offsets == [{T0: 5}]


def test_sources_of_other_kinds_are_passed_over() -> None:
    shown = Shown()
    listener(shown).onQueryProgress(event("null", None, "12", '{"logOffset": 3}', "no json", AT_5))
    assert shown.offsets == [{T0: 5}]


def test_other_queries_are_passed_over_if_one_is_named() -> None:
    shown = Shown()
    for name in (None, "other", "mine"):
        listener(shown, query="mine").onQueryProgress(event(AT_5, name=name))
    assert len(shown.offsets) == 1


def test_a_refusal_is_said_once_and_reaches_nobody_else() -> None:
    shown, said = Shown(), list[str]()
    shown.refusal = UserError("no permission")
    refused = listener(shown, said)
    for _ in range(3):
        refused.onQueryProgress(event(AT_5))
    assert said == ["no permission"]


def test_without_a_group_there_is_nothing_to_do() -> None:
    with pytest.raises(UserError, match="groupId"):
        ProgressListener({name: value for name, value in OPTIONS.items() if name != "groupId"})
