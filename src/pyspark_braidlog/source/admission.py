"""How much the next batch may read: at most so many offsets, and not before there are so many."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows

from pyspark_braidlog.source.model import Offsets


class Admission:
    """Applies `maxOffsetsPerTrigger`, `minOffsetsPerTrigger` and `maxTriggerDelay`.

    Spark asks for the source's own limit and hands it back with every trigger, or says to read all that there is
    (`Trigger.Once`). It knows no limit that is both least and most: with both options set the most is what it is
    told, and when that comes back the least applies too.
    """

    def __init__(
        self,
        *,
        most: int | None = None,
        least: int | None = None,
        max_delay_s: float = 0.0,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._least = least
        self._max_delay_s = max_delay_s
        self._now = now
        self._last_trigger: float | None = None

    @property
    def own_limit(self) -> ReadLimit:
        if self._most is not None:
            return ReadMaxRows(self._most)
        if self._least is not None:
            return ReadMinRows(self._least)
        return ReadAllAvailable()

    def end(self, begin: Offsets, available: Offsets, limit: ReadLimit, *, is_last_chance: bool = False) -> Offsets:
        """Where the batch from `begin` on ends; `begin` itself if it is not time for one yet.

        `is_last_chance`: nobody waits for more records to come, so that few are no reason to leave them.
        """
        most, least = self._limits(limit)
        if least is not None and not is_last_chance and self._is_early(least, begin, available):
            return begin
        return available if most is None else shares(begin, available, most)

    def _limits(self, limit: ReadLimit) -> tuple[int | None, int | None]:
        """At most, and at least."""
        if limit == self.own_limit:
            return self._most, self._least
        return (
            limit.max_rows if isinstance(limit, ReadMaxRows) else None,
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


def _sizes(begin: Offsets, available: Offsets) -> Offsets:
    return {place: max(0, until - begin[place]) for place, until in available.items()}
