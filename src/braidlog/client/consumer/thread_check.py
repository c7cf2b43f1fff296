"""A consumer belongs to one process, and there to one thread at a time; calls within calls of that thread are fine."""

from __future__ import annotations

import threading
from types import TracebackType

from braidlog.client.errors import ClosedError, ConcurrentUseError


class OneThread:
    """`with one_thread:` around every call that only one thread may make."""

    __slots__ = ("_depth", "_free", "_owner", "_refusal", "_what")

    def __init__(self, what: str) -> None:
        self._what = what
        self._free = threading.Lock()
        self._owner = 0
        self._depth = 0
        self._refusal: ClosedError | None = None

    @property
    def is_forked(self) -> bool:
        return self._refusal is not None

    def mark_forked(self) -> None:
        """In the child of a fork: every call is refused from now on, before it takes a lock that nobody releases."""
        self._refusal = ClosedError(
            f"this {self._what} was made before a fork and belongs to the parent process; make a new one here"
        )

    def check(self) -> None:
        if self._refusal is not None:
            raise self._refusal.with_traceback(None)

    def __enter__(self) -> None:
        if self._refusal is not None:
            self.check()
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
