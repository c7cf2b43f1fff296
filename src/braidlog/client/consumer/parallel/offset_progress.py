"""How far a partition is when its records are finished out of order.

taken     10 11 12 14 15        13 is a marker or was compacted away: nobody is given it
done       x     x     x
position     11                 everything before it is done: the most that may be committed
"""

from __future__ import annotations

from collections import deque


class OffsetProgress:
    """Of one partition, while it is ours: offsets are taken in rising order and finished in any.

    Invariant: no offset at or after `position` has been passed over; every taken one before it is done.
    """

    __slots__ = ("_done", "_taken", "committed", "is_dropped", "leader_epoch", "position")

    def __init__(self) -> None:
        # (offset, leader epoch) of what was taken from `position` on.
        self._taken: deque[tuple[int, int]] = deque()
        # Of these, what is done but has something undone before it.
        self._done: set[int] = set()
        # The offset to commit; -1 until something was taken.
        self.position = -1
        # Of the last record before `position`.
        self.leader_epoch = -1
        # The position that the group was told last.
        self.committed = -1
        # The partition is another's now: what still happens here counts for nothing.
        self.is_dropped = False

    def may_take(self, offset: int) -> bool:
        """Offsets only rise; one that does not is of another reading."""
        return offset > (self._taken[-1][0] if self._taken else self.position - 1)

    def take(self, offset: int, leader_epoch: int = -1) -> None:
        if not self.may_take(offset):
            raise ValueError(f"offset {offset} was taken before")
        if not self._taken:
            # Nothing is open: what lies between is no record that anybody waits for.
            self.position = offset
            if self.committed < 0:
                self.committed = offset
        self._taken.append((offset, leader_epoch))

    def finish(self, offset: int) -> None:
        """An offset that was taken is done, once."""
        if not self._taken or offset != self._taken[0][0]:
            self._done.add(offset)
            return
        done = self._done
        while True:
            first, self.leader_epoch = self._taken.popleft()
            if not self._taken:
                self.position = first + 1
                return
            self.position = self._taken[0][0]
            if self.position not in done:
                return
            done.remove(self.position)

    @property
    def undone(self) -> int:
        """How many were taken and are not done."""
        return len(self._taken) - len(self._done)

    @property
    def is_ahead(self) -> bool:
        """Whether there is something to commit."""
        return self.position > self.committed
