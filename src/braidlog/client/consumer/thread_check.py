"""A consumer belongs to one thread at a time; calls within calls of the same thread are fine."""

from __future__ import annotations

import threading
from types import TracebackType

from braidlog.client.errors import ConcurrentUseError


class OneThread:
    """`with one_thread:` around every call that only one thread may make."""

    __slots__ = ("_depth", "_free", "_owner", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._free = threading.Lock()
        self._owner = 0
        self._depth = 0

    def __enter__(self) -> None:
        me = threading.get_ident()
        # Only this thread can have written its own number here.
        if self._owner != me:
            if not self._free.acquire(blocking=False):
                raise ConcurrentUseError(
                    f"this {self._what} is in use by another thread; give each thread its own, "
                    "or guard it with a lock (wakeup() alone may come from anywhere)"
                )
            self._owner = me
        self._depth += 1

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = 0
            self._free.release()
