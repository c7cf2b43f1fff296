"""Where `braidlog consume` begins and ends: the words of --offset, and what they mean for the partitions there are."""

from __future__ import annotations

import argparse
from enum import Enum, auto
from typing import Final, NamedTuple

from braidlog.cli.options import offset_number, shortened, timestamp_ms
from braidlog.client.consumer.consumer import Consumer
from braidlog.core.types import TopicPartition


class OffsetKind(Enum):
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


class OffsetPosition(NamedTuple):
    at: OffsetKind
    number: int = 0


class OffsetRange(NamedTuple):
    """The type of --offset; without an `end` it goes on with what comes."""

    start: OffsetPosition
    # The first place that is not read any more.
    end: OffsetPosition | None = None


_WORDS: Final = {
    "earliest": OffsetKind.EARLIEST,
    "beginning": OffsetKind.EARLIEST,
    "latest": OffsetKind.LATEST,
    "end": OffsetKind.LATEST,
    "committed": OffsetKind.COMMITTED,
}


def offset_range(text: str) -> OffsetRange:
    """The type of --offset: a place, or two with a colon between them (either may be left out, not both)."""
    whole = _place(text)
    if whole is not None:
        return OffsetRange(whole)
    # Times have colons of their own: the last one with a place on either side is the range's.
    at = text.rfind(":")
    while at >= 0:
        first = _place(text[:at]) if at > 0 else OffsetPosition(OffsetKind.EARLIEST)
        last = _place(text[at + 1 :]) if at + 1 < len(text) else None
        if first is not None and (last is not None or 0 < at == len(text) - 1):
            return _checked(text, OffsetRange(first, last))
        at = text.rfind(":", 0, at)
    raise argparse.ArgumentTypeError(
        f"{shortened(text)} is none of earliest, latest, committed, N, end-N (or -N), @TIME, "
        "nor a range START:END of them"
    )


def _checked(text: str, found: OffsetRange) -> OffsetRange:
    first, last = found
    if first.at is OffsetKind.COMMITTED or (last is not None and last.at is OffsetKind.COMMITTED):
        raise argparse.ArgumentTypeError(f"{text!r}: a range is not for groups; leave out committed")
    if last is None or first.at is not last.at:
        return found
    backwards = first.number < last.number if first.at is OffsetKind.BEFORE_END else first.number > last.number
    if backwards:
        raise argparse.ArgumentTypeError(f"{text!r} ends before it begins")
    return found


def _place(text: str) -> OffsetPosition | None:
    if text in _WORDS:
        return OffsetPosition(_WORDS[text])
    if text.startswith("@"):
        try:
            return OffsetPosition(OffsetKind.TIME, timestamp_ms(text[1:]))
        except argparse.ArgumentTypeError:
            if ":" in text:
                # Perhaps of a range.
                return None
            raise
    if text.isascii() and text.isdecimal():
        return OffsetPosition(OffsetKind.OFFSET, offset_number(text))
    back = text.removeprefix("end")
    if back.startswith("-") and back[1:].isascii() and back[1:].isdecimal():
        return OffsetPosition(OffsetKind.BEFORE_END, offset_number(back[1:]))
    return None


def positions_of(
    consumer: Consumer, partitions: list[TopicPartition], where: OffsetPosition
) -> dict[TopicPartition, int]:
    """By partition the offset that a place means now; the end is what may be read at the consumer's isolation level."""
    if where.at is OffsetKind.OFFSET:
        return dict.fromkeys(partitions, where.number)
    if where.at is OffsetKind.EARLIEST:
        return consumer.beginning_offsets(partitions)
    if where.at is OffsetKind.TIME:
        found = consumer.offsets_for_times(dict.fromkeys(partitions, where.number))
        # No record is that young: what comes next will be.
        late = [each for each, answer in found.items() if answer is None]
        ends = consumer.end_offsets(late) if late else {}
        return {each: ends[each] if answer is None else answer.offset for each, answer in found.items()}
    ends = consumer.end_offsets(partitions)
    if where.at is OffsetKind.LATEST:
        return ends
    first = consumer.beginning_offsets(partitions)
    return {each: max(end - where.number, first[each]) for each, end in ends.items()}
