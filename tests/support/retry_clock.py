"""Retries on a clock of their own."""

from __future__ import annotations

from braidlog.client.backoff import Retry


class RetryClock:
    """`sleeps` are how long was waited each time; nobody really waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.sleeps: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds

    def retry(self, for_s: float) -> Retry:
        return Retry(for_s, lambda: self.now, self.sleep)
