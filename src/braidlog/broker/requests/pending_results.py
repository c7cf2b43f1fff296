"""Results that come one by one, some at once and some later, and are answered together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class PendingResults(Generic[K, V]):
    """Calls `done` once, with the results by key in the order in which they came, when the last is there.

    What is expected is counted as it is asked for; `all_asked` says that nothing more will be. So a result that comes
    at once does not complete the set too early.
    """

    __slots__ = ("_done", "_missing", "_results")

    def __init__(self, done: Callable[[dict[K, V]], None]) -> None:
        self._done = done
        # The asking itself counts as one.
        self._missing = 1
        self._results: dict[K, V] = {}

    def expect(self, count: int) -> None:
        self._missing += count

    def put(self, key: K, result: V) -> None:
        self._results[key] = result
        self.all_asked()

    def all_asked(self) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._done(self._results)
