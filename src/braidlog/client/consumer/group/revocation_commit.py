"""The auto-commit before partitions are given up: begun once, waited for without blocking, and not for ever."""

from __future__ import annotations

from concurrent.futures import Future

from braidlog.client.consumer.group.membership import AutoCommit
from braidlog.core.clock import Clock


class RevocationCommit:
    def __init__(self, clock: Clock, longest_s: float) -> None:
        self._clock = clock
        self._longest_s = longest_s
        self._is_begun = False
        self._under_way: Future[None] | None = None
        self._until = 0.0

    def is_over(self, commits: AutoCommit | None) -> bool:
        """Whether what was returned is committed, as far as it can be; the first question begins that."""
        now = self._clock.monotonic()
        if not self._is_begun:
            self._is_begun = True
            self._under_way = commits.begin_auto_commit() if commits is not None else None
            self._until = now + self._longest_s
        if self._under_way is not None and not self._under_way.done() and now < self._until:
            return False
        self.forget()
        return True

    def forget(self) -> None:
        self._is_begun = False
        self._under_way = None

    def due(self) -> float | None:
        """When the wait ends at the latest; none where nothing is waited for."""
        return self._until if self._under_way is not None else None
