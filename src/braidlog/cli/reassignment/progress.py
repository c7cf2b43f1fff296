"""How far moves are: partitions, bytes, rate and time left; pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from typing import Final

from braidlog.cli.output import size_text
from braidlog.cli.reassignment.moves import Move, ReplicaSizes
from braidlog.core.types import TopicPartition

# The rate is that of so many of the last looks.
_LOOKS: Final = 30


class MoveProgress:
    def __init__(self, moves: Sequence[Move]) -> None:
        self._moves = moves
        self.partitions_done = 0
        self.copied = 0
        self.total = sum(move.bytes for move in moves)
        # Times in seconds, and bytes copied by then.
        self._looks: deque[tuple[float, int]] = deque(maxlen=_LOOKS)

    def look(self, under_way: Collection[TopicPartition], sizes: ReplicaSizes, now_s: float) -> None:
        """`sizes` has what brokers hold now; a leader's log may have grown, and lost its oldest records."""
        copied = total = done = 0
        for move in self._moves:
            if move.partition not in under_way:
                done += 1
                copied += move.bytes
                total += move.bytes
                continue
            held = [sizes.get((move.partition, broker), 0) for broker in move.before]
            whole = max(held, default=0) or move.size
            for broker in move.adding:
                copied += min(sizes.get((move.partition, broker), 0), whole)
                total += whole
        self.partitions_done, self.copied, self.total = done, copied, total
        self._looks.append((now_s, copied))

    @property
    def rate(self) -> float:
        """Bytes a second; 0 where it is not known yet."""
        if len(self._looks) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self._looks[0], self._looks[-1]
        return max(last - first, 0) / (last_s - first_s) if last_s > first_s else 0.0

    @property
    def seconds_left(self) -> float | None:
        rate = self.rate
        return (self.total - self.copied) / rate if rate > 0 else None

    def text(self) -> str:
        done = f"{self.partitions_done} of {len(self._moves)} partitions moved"
        if self.total:
            done += f", {size_text(self.copied)} of {size_text(self.total)}"
        if self.rate:
            done += f", {size_text(int(self.rate))}/s"
        left = self.seconds_left
        return done if left is None else f"{done}, {duration_text(left)} left"


def duration_text(seconds: float) -> str:
    """Time for people: 3 min 20 s."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
