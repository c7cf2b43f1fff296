"""What becomes of producers that nobody closed: after a fork, and when the program ends."""

from __future__ import annotations

import atexit
import os
from typing import Protocol
from weakref import WeakSet


class Lasting(Protocol):
    def _leave_behind(self) -> None:
        """In the child of a fork: the engine's thread stayed with the parent, and so did the records."""
        ...

    def _warn_of_unsent(self) -> None:
        """The program ends, and the engine's thread with it."""
        ...

    def __hash__(self) -> int: ...


_open: WeakSet[Lasting] = WeakSet()
_watching = False


def watch(producer: Lasting) -> None:
    """From now until it is closed, or nobody refers to it."""
    global _watching
    _open.add(producer)
    if not _watching:
        _watching = True
        os.register_at_fork(after_in_child=_after_fork)
        atexit.register(_at_exit)


def forget(producer: Lasting) -> None:
    _open.discard(producer)


def _after_fork() -> None:
    for producer in list(_open):
        producer._leave_behind()
    _open.clear()


def _at_exit() -> None:
    for producer in list(_open):
        producer._warn_of_unsent()
