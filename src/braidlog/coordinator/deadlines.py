"""Deadlines of a shard: set, moved and cancelled often, due seldom."""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)

# What is due in a group: the kind of deadline, the group, the member.
GroupDeadline = tuple[str, str, str]

# Stale entries of the heap, beyond as many as there are keys, before they are removed.
_SPARE_ENTRIES: Final = 64


class Deadlines(Generic[K]):
    """Times (monotonic seconds) by key.

    A heartbeat moves its member's deadline every few seconds: moving one later only notes the new time, and the heap
    learns of it when the old one comes up.
    """

    def __init__(self) -> None:
        self._times: dict[K, float] = {}
        # (time, sequence, key): at least one entry no later than the time of every key.
        self._heap: list[tuple[float, int, K]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, key: K) -> bool:
        return key in self._times

    def get(self, key: K) -> float | None:
        return self._times.get(key)

    def set(self, key: K, at: float | None) -> None:
        """`None` cancels."""
        if at is None:
            self._times.pop(key, None)
            return
        before = self._times.get(key)
        self._times[key] = at
        if before is None or at < before:
            self._push(at, key)

    def cancel(self, key: K) -> None:
        self._times.pop(key, None)

    def next(self) -> float | None:
        """When to look again: no later than the earliest deadline, None if there is none."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now: float) -> list[K]:
        """The keys whose time has come, earliest first; they are forgotten."""
        due: list[K] = []
        while (key := self.pop_first_due(now)) is not None:
            due.append(key)
        return due

    def pop_first_due(self, now: float) -> K | None:
        """The earliest of the keys whose time has come; it is forgotten."""
        self._settle()
        if not self._heap or self._heap[0][0] > now:
            return None
        _, _, key = heapq.heappop(self._heap)
        del self._times[key]
        return key

    def _push(self, at: float, key: K) -> None:
        if len(self._heap) > 2 * len(self._times) + _SPARE_ENTRIES:
            # Deadlines that were set and cancelled far ahead of their time would stay until then.
            self._heap = [(time, index, known) for index, (known, time) in enumerate(self._times.items())]
            self._sequence = len(self._heap)
            heapq.heapify(self._heap)
        self._sequence += 1
        heapq.heappush(self._heap, (at, self._sequence, key))

    def _settle(self) -> None:
        """Bring the top of the heap up to date."""
        while self._heap:
            at, _, key = self._heap[0]
            time = self._times.get(key)
            if time == at:
                return
            heapq.heappop(self._heap)
            if time is not None and time > at:
                self._push(time, key)
