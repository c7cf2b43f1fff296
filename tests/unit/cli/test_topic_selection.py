"""Partitions as people write them."""

from __future__ import annotations

import argparse

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.cli.options import INT64_MAX
from braidlog.cli.topic_selection import TopicSelection, group_name, moment, parse_names, topic_selection, written
from braidlog.core.types import TopicPartition


@pytest.mark.parametrize(
    ("text", "choice"),
    [
        ("orders", TopicSelection("orders")),
        ("orders:0", TopicSelection("orders", (0,))),
        ("orders:2,0,2", TopicSelection("orders", (2, 0))),
    ],
)
def test_topics(text: str, choice: TopicSelection) -> None:
    assert topic_selection(text) == choice


@pytest.mark.parametrize("text", ["", ":0", "orders:", "orders:a", "orders:-1", "orders:0,,1", "orders:2147483648"])
def test_what_is_no_topic(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        topic_selection(text)


@given(st.dictionaries(st.from_regex(r"[a-z._-]{1,9}", fullmatch=True), st.sets(st.integers(0, 99), min_size=1)))
def test_what_is_written_can_be_read(topics: dict[str, set[int]]) -> None:
    partitions = sorted(TopicPartition(topic, number) for topic, numbers in topics.items() for number in numbers)
    read = [topic_selection(word) for word in filter(None, written(partitions).split(";"))]
    assert [TopicPartition(choice.topic, number) for choice in read for number in choice.partitions or ()] == partitions


def test_moments() -> None:
    assert moment(1_700_000_000_123) == "2023-11-14T22:13:20.123+00:00"
    assert moment(-1) is None
    assert moment(INT64_MAX) == str(INT64_MAX)


def test_words_as_the_protocol_spells_them() -> None:
    assert parse_names("stable, EMPTY", ("Empty", "Stable"), "state") == ["Stable", "Empty"]
    with pytest.raises(argparse.ArgumentTypeError, match="'x' is no state; choose from Empty, Stable"):
        parse_names("stable,x", ("Empty", "Stable"), "state")
    with pytest.raises(argparse.ArgumentTypeError):
        group_name("")
