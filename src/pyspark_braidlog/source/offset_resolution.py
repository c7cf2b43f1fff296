"""From what the options say to offsets: where a query begins and ends in every partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol, assert_never

from braidlog import TopicPartition
from braidlog.core.errors import UserError
from pyspark_braidlog.source.offset_range import Offsets
from pyspark_braidlog.source.offset_range_limit import (
    EARLIEST,
    LATEST,
    AtOffsets,
    AtTime,
    AtTimes,
    Committed,
    Earliest,
    Latest,
    OffsetRangeLimit,
)
from pyspark_braidlog.source.options import ReadOptions, Strategy
from pyspark_braidlog.source.topics import TopicFacts, topic_partitions


class OffsetLookup(Protocol):
    """What of a `ClusterView` is needed here."""

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...

    def at_time(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]: ...

    def committed(self, group: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...


def starting_offsets(view: OffsetLookup, options: ReadOptions, facts: dict[str, TopicFacts]) -> Offsets:
    """The first offset to read of every partition."""
    return _resolved(view, options.starting, facts, options.starting_strategy)


def ending_offsets(view: OffsetLookup, options: ReadOptions, facts: dict[str, TopicFacts]) -> Offsets:
    """The offset after the last to read of every partition."""
    # A time that no record has reached yet ends where the log does.
    return _resolved(view, options.ending, facts, "latest")


def _resolved(
    view: OffsetLookup, bound: OffsetRangeLimit, facts: dict[str, TopicFacts], otherwise: Strategy
) -> Offsets:
    places = topic_partitions(facts)
    match bound:
        case Earliest():
            return view.earliest(places)
        case Latest():
            return view.latest(places)
        case AtOffsets():
            _check_complete(bound.option, bound.offsets, places)
            return _specific(view, {place: bound.offsets[place] for place in places})
        case AtTime():
            return _timed(view, dict.fromkeys(places, bound.timestamp_ms), bound.option, otherwise)
        case AtTimes():
            _check_complete(bound.option, bound.timestamps_ms, places)
            return _timed(view, {place: bound.timestamps_ms[place] for place in places}, bound.option, otherwise)
        case Committed():
            return _committed(view, bound, places)
        case _:
            assert_never(bound)


def _committed(view: OffsetLookup, bound: Committed, places: list[TopicPartition]) -> Offsets:
    found = view.committed(bound.group, places)
    lacking = [place for place in places if place not in found]
    if lacking and bound.fallback == "error":
        raise UserError(
            f"group {bound.group} has committed nothing for {_listed(lacking)}; set startingOffsetsFallback=earliest "
            "or latest to begin there, and see whether the group's name is right"
        )
    if lacking:
        found |= view.earliest(lacking) if bound.fallback == "earliest" else view.latest(lacking)
    return {place: found[place] for place in places}


def _specific(view: OffsetLookup, offsets: Offsets) -> Offsets:
    latest = [place for place, offset in offsets.items() if offset == LATEST]
    earliest = [place for place, offset in offsets.items() if offset == EARLIEST]
    found = dict(offsets)
    if latest:
        found |= view.latest(latest)
    if earliest:
        found |= view.earliest(earliest)
    return found


def _timed(view: OffsetLookup, timestamps_ms: dict[TopicPartition, int], option: str, otherwise: Strategy) -> Offsets:
    at_time = view.at_time(timestamps_ms)
    found = {place: offset for place, offset in at_time.items() if offset is not None}
    unmatched = [place for place, offset in at_time.items() if offset is None]
    if unmatched and otherwise == "error":
        first = unmatched[0]
        raise UserError(
            f"option {option}: {first} has no record at or after {timestamps_ms[first]} ms; choose an earlier time, or "
            "set startingOffsetsByTimestampStrategy=latest to begin after what is there"
        )
    if unmatched:
        found |= view.latest(unmatched)
    return {place: found[place] for place in timestamps_ms}


def _check_complete(option: str, named: Mapping[TopicPartition, int], places: list[TopicPartition]) -> None:
    missing = sorted(set(places).difference(named))
    if missing:
        raise UserError(
            f"option {option} has to name every partition that is read: it lacks {_listed(missing)}"
            + ("" if "Timestamp" in option else "; use -1 for latest, -2 for earliest")
        )
    extra = sorted(set(named).difference(places))
    if extra:
        raise UserError(f"option {option} names {_listed(extra)}, which this query does not read")


def _listed(places: list[TopicPartition]) -> str:
    return ", ".join(map(str, places[:5])) + (f" and {len(places) - 5} more" if len(places) > 5 else "")
