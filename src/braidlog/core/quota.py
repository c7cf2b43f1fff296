"""What quotas are counted with: rates over sampled windows, token buckets, and how long who is over has to wait.

    sampled rate     bytes, time of requests, connections: a quota is the most that the average may be (KIP-13)
    token bucket     changes of topics: a burst is let through, what comes after it waits for tokens (KIP-599)

Times are given in milliseconds; nothing here looks at a clock.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

# The field of responses that tells of it has 32 bits.
MOST_THROTTLE_MS: Final = 2**31 - 1


class QuotaWindow(NamedTuple):
    """How many samples are kept, and how long each lasts (`quota.window.num`, `quota.window.size.seconds`)."""

    samples: int = 11
    sample_ms: int = 1000

    @property
    def length_ms(self) -> int:
        return self.samples * self.sample_ms

    @property
    def complete_ms(self) -> int:
        """Of all samples but the one that is being filled."""
        return (self.samples - 1) * self.sample_ms


DEFAULT_WINDOW: Final = QuotaWindow()


class _Sample:
    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        self.value = 0.0


class SampledRate:
    """A sum over the last samples, divided by the time that they cover.

    A sample begins with the first event after the one before is over, and counts until its last event is as old as all
    samples together. The time is at least that of all samples but one: who has just begun may send as much at once as
    others do in that time.
    """

    __slots__ = ("_samples", "_window")

    def __init__(self, window: QuotaWindow) -> None:
        self._window = window
        # Oldest first; no more than one above those of the window, since a sample is left for a new one after its time.
        self._samples: deque[_Sample] = deque()

    def record(self, value: float, now_ms: int) -> None:
        """A value below zero takes back what was recorded and did not happen."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window.sample_ms:
            samples.append(_Sample(now_ms))
            self._forget_old(now_ms)
        current = samples[-1]
        current.value += value
        current.last_ms = now_ms

    def window_ms(self, now_ms: int) -> int:
        """The time that the samples cover."""
        self._forget_old(now_ms)
        window = self._window
        elapsed = now_ms - self._samples[0].start_ms if self._samples else 0
        missing = window.samples - 1 - elapsed // window.sample_ms
        if missing > 0:
            elapsed += missing * window.sample_ms
        return max(elapsed, 1)

    def per_second(self, now_ms: int) -> float:
        window_ms = self.window_ms(now_ms)
        return sum(sample.value for sample in self._samples) * 1000.0 / window_ms

    def per_second_since_first(self, now_ms: int) -> float:
        """Over the time since the oldest sample began, at least that of one sample: how replication is measured."""
        self._forget_old(now_ms)
        if not self._samples:
            return 0.0
        elapsed_ms = max(now_ms - self._samples[0].start_ms, self._window.sample_ms)
        return sum(sample.value for sample in self._samples) * 1000.0 / elapsed_ms

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """How long nothing may come until the rate is down at the quota; 0 where it is not above."""
        observed = self.per_second(now_ms)
        if observed <= quota:
            return 0
        if quota <= 0:
            # No time is long enough: a whole window at a time.
            return self._window.length_ms
        return min(rounded((observed - quota) / quota * self.window_ms(now_ms)), MOST_THROTTLE_MS)

    def _forget_old(self, now_ms: int) -> None:
        samples = self._samples
        oldest_ms = now_ms - self._window.length_ms
        while samples and samples[0].last_ms <= oldest_ms:
            samples.popleft()


class TokenBucket:
    """Holds what may be spent at once: as much as comes in a whole window. It may be spent below zero once."""

    __slots__ = ("_at_ms", "_window_ms", "quota", "tokens")

    def __init__(self, window: QuotaWindow, quota: float, now_ms: int) -> None:
        self._window_ms = window.length_ms
        self.quota = quota
        self.tokens = self._burst
        self._at_ms = now_ms

    def change_quota(self, quota: float, now_ms: int) -> None:
        """What is in the bucket stays, as far as the new one holds it."""
        self._refill(now_ms)
        self.quota = quota
        self.tokens = min(self.tokens, self._burst)

    def spend(self, tokens: float, now_ms: int) -> None:
        self._refill(now_ms)
        self.tokens -= tokens

    def measure(self, now_ms: int) -> float:
        """What is in the bucket now."""
        self._refill(now_ms)
        return self.tokens

    def throttle_ms(self, now_ms: int) -> int:
        """How long until the bucket is not below zero any more."""
        self._refill(now_ms)
        if self.tokens >= 0:
            return 0
        if self.quota <= 0:
            return self._window_ms
        return min(rounded(-self.tokens / self.quota * 1000.0), MOST_THROTTLE_MS)

    @property
    def _burst(self) -> float:
        return self.quota * self._window_ms / 1000.0

    def _refill(self, now_ms: int) -> None:
        elapsed_s = (now_ms - self._at_ms) / 1000.0
        self.tokens = min(self._burst, self.tokens + self.quota * elapsed_s)
        self._at_ms = now_ms


def rounded(value: float) -> int:
    """To the nearest number, halves up: how Kafka rounds times."""
    return math.floor(value + 0.5)
