"""What becomes of a consumer that nobody closed: when it is collected, when the program ends, and after a fork.

A consumer that is forgotten leaves its group, so that its partitions do not wait for `session.timeout.ms`. It commits
nothing: what the last poll returned may not be handled yet.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol
from weakref import WeakMethod, WeakSet, finalize

from braidlog.client.exit_handlers import at_exit

# All consumers together, when the program ends; brokers that answer take a few milliseconds.
_EXIT_S: Final = 3.0


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

    def __init__(self, owner: object, side: Abandonable, after_fork: Callable[[], None]) -> None:
        self._side = side
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
            _leaving.append(self._side.abandon())
            # Another thread may take the last one away.
            with suppress(IndexError):
                while _leaving[0].is_set():
                    _leaving.popleft()

    def on_exit(self) -> threading.Event | None:
        return self._side.abandon(keep_engine=True) if self.end() else None

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
