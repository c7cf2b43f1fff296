"""How much the next batch may read: at most so many offsets or bytes, and not before there are so many."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows, ReadMinRows

from braidlog import TopicPartition
from pyspark_braidlog.source.offset_range import Offsets

# What an offset takes in the log at some offset of each partition; unknown ones are left out.
BytesPerOffset = Callable[[Offsets], Mapping[TopicPartition, float]]

# An estimate is not looked into further that is so close.
_CLOSE: Final = 1.1
_ROUNDS: Final = 4


def _unknown(_: Offsets) -> Mapping[TopicPartition, float]:
    return {}


class _Limits(NamedTuple):
    most: int | None = None
    most_bytes: int | None = None
    least: int | None = None


class Admission:
    """Applies `maxOffsetsPerTrigger`, `maxBytesPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay`.

    Spark asks for the source's own limit and hands it back with every trigger, or says to read all that there is
    (`Trigger.Once`). It knows no limit that is several things: with several options set it gets one, and when that
    comes back all of them apply.
    """

    def __init__(
        self,
        *,
        most: int | None = None,
        most_bytes: int | None = None,
        least: int | None = None,
        max_delay_s: float = 0.0,
        now: Callable[[], float] = time.monotonic,
        bytes_per_offset: BytesPerOffset = _unknown,
    ) -> None:
        self._own = _Limits(most, most_bytes, least)
        self._bytes_per_offset = bytes_per_offset
        self._max_delay_s = max_delay_s
        self._now = now
        self._last_trigger: float | None = None

    @property
    def own_limit(self) -> ReadLimit:
        most, most_bytes, least = self._own
        if most is not None:
            return ReadMaxRows(most)
        if most_bytes is not None:
            return ReadMaxBytes(most_bytes)
        if least is not None:
            return ReadMinRows(least)
        return ReadAllAvailable()

    def end(self, begin: Offsets, available: Offsets, limit: ReadLimit, *, is_last_chance: bool = False) -> Offsets:
        """Where the batch from `begin` on ends; `begin` itself if it is not time for one yet.

        `is_last_chance`: the query does not wait for more records, so that the few there are must be read now.
        """
        most, most_bytes, least = self._limits(limit)
        if least is not None and not is_last_chance and self._is_early(least, begin, available):
            return begin
        end = available if most is None else shares(begin, available, most)
        return end if most_bytes is None else within_bytes(begin, end, most_bytes, self._bytes_per_offset)

    def _limits(self, limit: ReadLimit) -> _Limits:
        if limit == self.own_limit:
            return self._own
        return _Limits(
            limit.max_rows if isinstance(limit, ReadMaxRows) else None,
            limit.max_bytes if isinstance(limit, ReadMaxBytes) else None,
            limit.min_rows if isinstance(limit, ReadMinRows) else None,
        )

    def _is_early(self, least: int, begin: Offsets, available: Offsets) -> bool:
        """The delay counts from the last trigger that was not put off; the first never is."""
        now = self._now()
        is_due = self._last_trigger is None or now - self._last_trigger >= self._max_delay_s
        if not is_due and sum(_sizes(begin, available).values()) < least:
            return True
        self._last_trigger = now
        return False


def shares(begin: Offsets, available: Offsets, most: int) -> Offsets:
    """`most` offsets divided among the partitions by what each has; none that has some goes away empty."""
    sizes = _sizes(begin, available)
    total = sum(sizes.values())
    if total <= most:
        return available
    end = dict(available)
    for place, size in sizes.items():
        if size > 0:
            end[place] = begin[place] + max(1, most * size // total)
    return end


def within_bytes(begin: Offsets, end: Offsets, most_bytes: int, bytes_per_offset: BytesPerOffset) -> Offsets:
    """An earlier end, so that about `most_bytes` lie before it; every partition gives up the same part of its offsets.

    Planning reads no records, so sizes are estimated: by those at both ends of what would be read, and again with a
    nearer end while that is too much. Large records behind small ones are noticed in this way, before they are read.
    """
    first = bytes_per_offset({place: begin[place] for place, size in _sizes(begin, end).items() if size > 0})
    for _ in range(_ROUNDS):
        sizes = {place: size for place, size in _sizes(begin, end).items() if size > 0}
        last = bytes_per_offset({place: end[place] - 1 for place, size in sizes.items() if size > 1})
        estimate = sum(
            size * (first.get(place, 0.0) + last.get(place, first.get(place, 0.0))) / 2 for place, size in sizes.items()
        )
        total = sum(sizes.values())
        if estimate <= most_bytes * _CLOSE or total <= len(sizes):
            break
        end = shares(begin, end, int(total * most_bytes / estimate))
    return end


def _sizes(begin: Offsets, available: Offsets) -> Offsets:
    return {place: max(0, until - begin[place]) for place, until in available.items()}
