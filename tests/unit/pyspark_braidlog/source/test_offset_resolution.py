"""From bounds to offsets, with a cluster whose logs are written down."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from braidlog import TopicPartition
from braidlog.core.errors import UserError
from pyspark_braidlog.source.offset_resolution import ending_offsets, starting_offsets
from pyspark_braidlog.source.options import ReadOptions
from pyspark_braidlog.source.topics import TopicFacts

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
FACTS = {"b": TopicFacts("id of b", (0,)), "a": TopicFacts("id of a", (0, 1))}
BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "a,b"}


class Logs:
    """Each partition has a record a second, from its first offset up to its end."""

    def __init__(self) -> None:
        self.spans = {A0: (2, 10), A1: (0, 0), B0: (0, 5)}
        self.questions: list[str] = []

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.questions.append("earliest")
        return {each: self.spans[each][0] for each in partitions}

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.questions.append("latest")
        return {each: self.spans[each][1] for each in partitions}

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        self.questions.append(f"committed by {group}")
        return {each: offset for each, offset in {A0: 7, B0: 5}.items() if each in partitions and group == "g"}

    def at_time(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        self.questions.append("at time")
        found: dict[TopicPartition, int | None] = {}
        for each, timestamp in timestamps_ms.items():
            first, end = self.spans[each]
            offset = max(first, -(-timestamp // 1000))
            found[each] = offset if offset < end else None
        return found


def start(**options: str) -> dict[TopicPartition, int]:
    return starting_offsets(Logs(), ReadOptions.checked({**BASE, **options}), FACTS)


def end(**options: str) -> dict[TopicPartition, int]:
    return ending_offsets(Logs(), ReadOptions.checked({**BASE, **options}), FACTS)


def test_words() -> None:
    assert start(startingOffsets="earliest") == {A0: 2, A1: 0, B0: 0}
    assert start(startingOffsets="latest") == {A0: 10, A1: 0, B0: 5}
    assert end(endingOffsets="latest") == {A0: 10, A1: 0, B0: 5}


def test_one_question_for_all_partitions() -> None:
    logs = Logs()
    starting_offsets(logs, ReadOptions.checked(BASE), FACTS)
    assert logs.questions == ["earliest"]


def test_offsets_with_words_among_them() -> None:
    assert start(startingOffsets='{"a": {"0": -2, "1": -1}, "b": {"0": 3}}') == {A0: 2, A1: 0, B0: 3}
    assert end(endingOffsets='{"a": {"0": 7, "1": -1}, "b": {"0": -1}}') == {A0: 7, A1: 0, B0: 5}


def test_every_partition_has_to_be_named_and_no_other() -> None:
    with pytest.raises(UserError, match="it lacks a-1, b-0; use -1 for latest, -2 for earliest"):
        start(startingOffsets='{"a": {"0": 4}}')
    with pytest.raises(UserError, match="names b-9, which this query does not read"):
        start(startingOffsets='{"a": {"0": 4, "1": 0}, "b": {"0": 0, "9": 0}}')
    with pytest.raises(UserError, match=r"endingOffsetsByTimestamp .* lacks a-1"):
        end(endingOffsetsByTimestamp='{"a": {"0": 4}, "b": {"0": 0}}')


def test_a_time_without_a_record_is_refused_as_a_start() -> None:
    with pytest.raises(UserError, match="startingTimestamp: a-1 has no record at or after 3000 ms"):
        start(startingTimestamp="3000")


def test_a_time_without_a_record_begins_at_the_latest_if_that_is_wanted() -> None:
    assert start(startingTimestamp="3001", startingOffsetsByTimestampStrategy="LATEST") == {A0: 4, A1: 0, B0: 4}
    assert start(startingTimestamp="8000", startingOffsetsByTimestampStrategy="latest") == {A0: 8, A1: 0, B0: 5}


def test_a_time_without_a_record_ends_at_the_latest() -> None:
    assert end(endingTimestamp="8000") == {A0: 8, A1: 0, B0: 5}


def test_times_by_partition() -> None:
    times = '{"a": {"0": 5000, "1": 0}, "b": {"0": 0}}'
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert start(startingOffsetsByTimestamp=times, **strategy) == {A0: 5, A1: 0, B0: 0}
    assert end(endingOffsetsByTimestamp=times) == {A0: 5, A1: 0, B0: 0}


def test_no_topics_no_offsets() -> None:
    assert starting_offsets(Logs(), ReadOptions.checked(BASE), {}) == {}


class TestCommitted:
    def test_where_a_group_is(self) -> None:
        found = start(startingOffsets="committed", groupId="g", startingOffsetsFallback="earliest")
        assert found == {A0: 7, A1: 0, B0: 5}
        assert start(startingOffsets=" Committed ", groupId="x", startingOffsetsFallback="latest") == {
            A0: 10,
            A1: 0,
            B0: 5,
        }

    def test_another_group_than_the_one_that_progress_goes_to(self) -> None:
        logs = Logs()
        options = {"startingOffsets": "committed", "groupId": "x", "startingGroupId": "g", "subscribe": "b"}
        assert starting_offsets(logs, ReadOptions.checked({**BASE, **options}), {"b": FACTS["b"]}) == {B0: 5}
        assert logs.questions == ["committed by g"]

    def test_partitions_without_a_commit_are_named(self) -> None:
        with pytest.raises(UserError, match=r"group g has committed nothing for a-1; set startingOffsetsFallback="):
            start(startingOffsets="committed", groupId="g")
