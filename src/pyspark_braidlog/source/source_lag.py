"""How far a query is behind, in offsets and in seconds, as its progress reports it.

    "latestOffset": {"@lag": {"offsets": 1200, "seconds": 8.4}, "orders": {"0": 4100}}

Seconds are the age of the oldest record that was there to be read when the batch was planned, and was not read by it:
0 where nothing was left, null where that could not be found out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from braidlog import TopicPartition
from braidlog.core.errors import UserError
from pyspark_braidlog.source.offset_range import Offsets

if TYPE_CHECKING:
    from braidlog.client.arrow.reading import LogSample

LAG: Final = "@lag"
# A small fetch for each partition with records left: not with every one of very short batches.
_EVERY_S: Final = 1.0
# While brokers do not answer, batches are not made to wait for a number.
_PAUSE_S: Final = 30.0

Samples = Callable[[Mapping[TopicPartition, int]], "dict[TopicPartition, LogSample]"]


class SourceLag:
    def __init__(self, samples: Samples, *, now: Callable[[], float], wall: Callable[[], float]) -> None:
        self._samples = samples
        self._now = now
        self._wall = wall
        self._next_look = 0.0
        # The timestamp of the oldest unread record when it was last looked for; None if that is not known.
        self._oldest_ms: int | None = None

    def written(self, position: Offsets, latest: Offsets) -> dict[str, Any]:
        behind = {place: latest[place] - offset for place, offset in position.items() if latest.get(place, -1) > offset}
        if not behind:
            # What comes next is newer than what was looked at.
            self._next_look = 0.0
            return {"offsets": 0, "seconds": 0.0}
        self._look({place: position[place] for place in behind})
        oldest = self._oldest_ms
        seconds = None if oldest is None else round(max(self._wall() - oldest / 1000, 0.0), 3)
        return {"offsets": sum(behind.values()), "seconds": seconds}

    def _look(self, unread: Offsets) -> None:
        now = self._now()
        if now < self._next_look:
            return
        try:
            found = self._samples(unread).values()
        except UserError:
            self._oldest_ms, self._next_look = None, now + _PAUSE_S
            return
        times = [each.timestamp_ms for each in found if each.timestamp_ms is not None and each.timestamp_ms >= 0]
        self._oldest_ms, self._next_look = min(times, default=None), now + _EVERY_S
