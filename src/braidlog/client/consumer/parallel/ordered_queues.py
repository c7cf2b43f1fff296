"""Which piece of work may begin: of those that must stay in order, one at a time.

key a   a1 a2 a3        a1 is under way; a2 becomes ready when it ends
key b   b1              ready at once, beside a1
no key  x  y            ready at once, beside everything
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Generic, TypeVar

Work = TypeVar("Work")


class OrderedQueues(Generic[Work]):
    """One queue per key; a key whose work was taken is held until it is released."""

    __slots__ = ("_behind", "_ready")

    def __init__(self) -> None:
        # In the order in which it became ready.
        self._ready: deque[Work] = deque()
        # Keys that are held, or whose first piece is ready, and what waits behind that.
        self._behind: dict[Hashable, deque[Work]] = {}

    def add(self, key: Hashable | None, work: Work) -> None:
        if key is None:
            self._ready.append(work)
            return
        behind = self._behind.get(key)
        if behind is None:
            self._behind[key] = deque()
            self._ready.append(work)
        else:
            behind.append(work)

    def take(self) -> Work | None:
        """What became ready first; its key is held from now on."""
        return self._ready.popleft() if self._ready else None

    def release(self, key: Hashable | None) -> None:
        """The work of this key has ended: the next of the key is ready."""
        if key is None:
            return
        behind = self._behind[key]
        if behind:
            self._ready.append(behind.popleft())
        else:
            del self._behind[key]

    @property
    def ready(self) -> int:
        return len(self._ready)

    @property
    def is_empty(self) -> bool:
        """Nothing is ready, waiting or held."""
        return not self._ready and not self._behind
