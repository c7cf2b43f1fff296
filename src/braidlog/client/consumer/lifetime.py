"""A consumer belongs to one process, and there to one thread at a time, until it is closed.

One that was never closed leaves its group when it is collected and when the program ends, so that its partitions do
not wait for `session.timeout.ms`. It commits nothing: what the last poll returned may not be handled yet.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Protocol
from weakref import WeakMethod, WeakSet, finalize

from braidlog.client.errors import ClosedError, ConcurrentUseError
from braidlog.client.exit_handlers import at_exit

# All consumers together, when the program ends; brokers that answer take a few milliseconds.
_EXIT_S: Final = 3.0


class OneThread:
    """`with one_thread:` around every call that only one thread may make; calls within its calls are fine."""

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
        """In the child of a fork: every call is refused from now on, before it takes a lock that is never released."""
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


class Abandonable(Protocol):
    """The engine's side of a consumer, which goes on when the consumer itself is gone."""

    def abandon(self, *, keep_engine: bool = False) -> threading.Event:
        """Leave the group and close, without waiting; the event is set when that is done.

        The garbage collector calls it, in any thread and inside any call: it takes no lock and logs nothing there.
        """
        ...


class ConsumerLifetime:
    """From the making of a consumer until it is closed, collected, forked away, or the program ends.

    `after_fork` is the owner's method to call in the child of a fork.
    """

    def __init__(self, owner: object, network: Abandonable, after_fork: Callable[[], None]) -> None:
        self._network = network
        self._process = os.getpid()
        self._after_fork_method = WeakMethod(after_fork)
        self._finalizer = finalize(owner, self._on_collected)
        # At exit all of them leave at once, instead of one after the other.
        self._finalizer.atexit = False
        _watch(self)

    def end(self) -> bool:
        """Whether it was still open; from now on nothing is done for it."""
        return self._finalizer.detach() is not None

    def _on_collected(self) -> None:
        if os.getpid() == self._process:
            _leaving.append(self._network.abandon())
            # Another thread may take the last one away.
            with suppress(IndexError):
                while _leaving[0].is_set():
                    _leaving.popleft()

    def on_exit(self) -> threading.Event | None:
        return self._network.abandon(keep_engine=True) if self.end() else None

    def on_fork(self) -> None:
        after_fork = self._after_fork_method()
        if self.end() and after_fork is not None:
            after_fork()


_open: WeakSet[ConsumerLifetime] = WeakSet()
# Of those that were collected: set when they have left.
_leaving: deque[threading.Event] = deque()
_is_watching = False


def _watch(lifetime: ConsumerLifetime) -> None:
    global _is_watching
    _open.add(lifetime)
    if not _is_watching:
        _is_watching = True
        os.register_at_fork(after_in_child=_after_fork)
        at_exit(_at_exit)


def _after_fork() -> None:
    for lifetime in list(_open):
        lifetime.on_fork()
    _open.clear()
    _leaving.clear()


def _at_exit() -> None:
    deadline = time.monotonic() + _EXIT_S
    for event in [*(lifetime.on_exit() for lifetime in list(_open)), *_leaving]:
        if event is not None:
            event.wait(max(0.0, deadline - time.monotonic()))
