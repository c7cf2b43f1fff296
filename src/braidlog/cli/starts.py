"""Where `braidlog consume` begins: the words of --offset, and what they mean for the partitions there are."""

from __future__ import annotations

import argparse
from enum import Enum, auto
from typing import NamedTuple

from braidlog.cli.options import offset_number, shortened, timestamp_ms
from braidlog.client.consumer.consumer import Consumer
from braidlog.core.types import TopicPartition


class At(Enum):
    EARLIEST = auto()
    LATEST = auto()
    # `number` records before the end
    BEFORE_END = auto()
    # the first record at or after the time `number`
    TIME = auto()
    # the offset `number`
    OFFSET = auto()
    # where the group is
    COMMITTED = auto()


class Start(NamedTuple):
    at: At
    number: int = 0


def start(text: str) -> Start:
    """The type of --offset."""
    words = {"earliest": At.EARLIEST, "latest": At.LATEST, "end": At.LATEST, "committed": At.COMMITTED}
    if text in words:
        return Start(words[text])
    if text.startswith("@"):
        return Start(At.TIME, timestamp_ms(text[1:]))
    if text.isdecimal():
        return Start(At.OFFSET, offset_number(text))
    back = text.removeprefix("end")
    if back.startswith("-") and back[1:].isdecimal():
        return Start(At.BEFORE_END, offset_number(back[1:]))
    known = "earliest, latest, committed, N, end-N (or -N), @TIME"
    raise argparse.ArgumentTypeError(f"{shortened(text)} is none of {known}")


def positions_of(consumer: Consumer, partitions: list[TopicPartition], where: Start) -> dict[TopicPartition, int]:
    """By partition the offset to begin with; the end is what may be read at the consumer's isolation level."""
    if where.at is At.OFFSET:
        return dict.fromkeys(partitions, where.number)
    if where.at is At.EARLIEST:
        return consumer.beginning_offsets(partitions)
    if where.at is At.TIME:
        found = consumer.offsets_for_times(dict.fromkeys(partitions, where.number))
        # No record is that young: what comes next will be.
        late = [each for each, answer in found.items() if answer is None]
        ends = consumer.end_offsets(late) if late else {}
        return {each: ends[each] if answer is None else answer.offset for each, answer in found.items()}
    ends = consumer.end_offsets(partitions)
    if where.at is At.LATEST:
        return ends
    first = consumer.beginning_offsets(partitions)
    return {each: max(end - where.number, first[each]) for each, end in ends.items()}
