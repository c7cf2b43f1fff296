"""Which piece of work may begin: of those that must stay in order, one at a time.

lane a   a1 a2 a3        a1 is under way; a2 becomes ready when it ends
lane b   b1              ready at once, beside a1
no lane  x  y            ready at once, beside everything
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Work = TypeVar("Work")


class KeyLanes(Generic[Work]):
    """Work waits in lanes; what is taken from a lane holds it until it is released."""

    __slots__ = ("_behind", "_ready")

    def __init__(self) -> None:
        # In the order in which it became ready.
        self._ready: deque[Work] = deque()
        # Lanes that are held, or whose first piece is ready, and what waits behind that.
        self._behind: dict[Hashable, deque[Work]] = {}

    def add(self, lane: Hashable | None, work: Work) -> None:
        if lane is None:
            self._ready.append(work)
            return
        behind = self._behind.get(lane)
        if behind is None:
            self._behind[lane] = deque()
            self._ready.append(work)
        else:
            behind.append(work)

    def take(self) -> Work | None:
        """What became ready first; its lane is held from now on."""
        return self._ready.popleft() if self._ready else None

    def release(self, lane: Hashable | None) -> None:
        """What was taken from the lane has ended: the next of it is ready."""
        if lane is None:
            return
        behind = self._behind[lane]
        if behind:
            self._ready.append(behind.popleft())
        else:
            del self._behind[lane]

    @property
    def ready(self) -> int:
        return len(self._ready)

    @property
    def is_empty(self) -> bool:
        """Nothing is ready, waiting or held."""
        return not self._ready and not self._behind
