"""Words of groups and transactions: partitions as people write them (`orders:0,2`), names, states."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from braidlog.cli.options import partition_number
from braidlog.cli.reset_plan import Bounds
from braidlog.client.admin.admin import Admin
from braidlog.client.admin.cluster_connection import ClusterConnection
from braidlog.client.admin.records import OffsetSpec
from braidlog.client.broker_errors import check
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition


def group_name(text: str) -> str:
    return _not_empty(text, "a group's name")


def transactional_id(text: str) -> str:
    return _not_empty(text, "a transactional id")


def _not_empty(text: str, what: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError(f"{what} has at least one character")
    return text


class TopicSelection(NamedTuple):
    """Some partitions of a topic, or all of them."""

    topic: str
    partitions: tuple[int, ...] | None = None


def topic_selection(text: str) -> TopicSelection:
    """The type of `--topic TOPIC[:0,1]`; a colon is never part of a topic's name."""
    topic, colon, numbers = text.partition(":")
    if not topic or (colon and not numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is neither TOPIC nor TOPIC:0,1")
    if not colon:
        return TopicSelection(topic)
    return TopicSelection(topic, tuple(dict.fromkeys(partition_number(word) for word in numbers.split(","))))


def parse_names(text: str, names: Sequence[str], what: str) -> list[str]:
    """Words, by commas, as the protocol spells them."""
    spelled = {name.lower(): name for name in names}
    chosen: list[str] = []
    for word in text.split(","):
        if word.strip().lower() not in spelled:
            raise argparse.ArgumentTypeError(f"{word!r} is no {what}; choose from {', '.join(names)}")
        chosen.append(spelled[word.strip().lower()])
    return chosen


def selected_partitions(cluster: ClusterConnection, choices: Sequence[TopicSelection]) -> list[TopicPartition]:
    """The partitions meant, all of which exist."""
    found: dict[TopicPartition, None] = {}
    topics = {topic.name: topic for topic in cluster.metadata(sorted({choice.topic for choice in choices}))}
    for choice in choices:
        topic = topics[choice.topic]
        check(topic.error_code, f"topic {choice.topic}")
        there = range(len(topic.partitions))
        for number in there if choice.partitions is None else choice.partitions:
            if number not in there:
                raise UserError(f"topic {choice.topic} has no partition {number}; it has {len(there)}, counted from 0")
            found[TopicPartition(choice.topic, number)] = None
    return list(found)


def bounds_of(
    admin: Admin, partitions: Iterable[TopicPartition], at_ms: int | None = None
) -> dict[TopicPartition, Bounds]:
    """Where partitions start and end, and the first record at or after a time."""
    asked = sorted(partitions)

    def listed(spec: int) -> dict[TopicPartition, int]:
        found = admin.list_offsets(dict.fromkeys(asked, spec)).raise_for_errors()
        return {each: listed.offset for each, listed in found.items()}

    starts, ends = listed(OffsetSpec.EARLIEST), listed(OffsetSpec.LATEST)
    times = {} if at_ms is None else listed(at_ms)
    return {each: Bounds(starts[each], ends[each], times.get(each, -1)) for each in asked}


def written(partitions: Iterable[TopicPartition]) -> str:
    """`orders:0,2;users:1`."""
    by_topic: dict[str, list[str]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(str(number))
    return ";".join(f"{topic}:{','.join(numbers)}" for topic, numbers in by_topic.items())


def moment(milliseconds: int) -> str | None:
    """A time of the protocol as ISO 8601; -1 stands for none."""
    if milliseconds < 0:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
    except (OverflowError, ValueError, OSError):
        # Producers choose their timestamps freely, beyond the end of the calendar too.
        return str(milliseconds)


def as_json(partitions: Iterable[TopicPartition] | None) -> list[dict[str, object]] | None:
    if partitions is None:
        return None
    return [{"topic": topic, "partition": number} for topic, number in partitions]
