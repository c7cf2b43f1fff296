"""The segments of a log in offset order (hot: compiled by mypyc)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from braidlog.storage.log.log_segment import LogSegment


class LogSegments:
    """Never empty once the log is open; the last one is active."""

    def __init__(self) -> None:
        self.items: list[LogSegment] = []
        self._bases: list[int] = []

    @property
    def active(self) -> LogSegment:
        return self.items[-1]

    @property
    def first(self) -> LogSegment:
        return self.items[0]

    def add(self, segment: LogSegment) -> None:
        """One of the same base offset is replaced."""
        at = bisect_left(self._bases, segment.base_offset)
        if at < len(self._bases) and self._bases[at] == segment.base_offset:
            self.items[at] = segment
        else:
            self.items.insert(at, segment)
            self._bases.insert(at, segment.base_offset)

    def remove(self, segment: LogSegment) -> None:
        """This very segment; one that replaced it stays."""
        at = bisect_left(self._bases, segment.base_offset)
        if at < len(self._bases) and self.items[at] is segment:
            del self.items[at]
            del self._bases[at]

    def floor(self, offset: int) -> int:
        """Number of the segment that covers `offset`; the first one's for an offset below all."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def has_base(self, base_offset: int) -> bool:
        at = bisect_left(self._bases, base_offset)
        return at < len(self._bases) and self._bases[at] == base_offset
