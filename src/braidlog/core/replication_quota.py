"""The rate to which the copying of replicas is held (KIP-73): what went over is waited for before more is let through.

    paid until ──────────── now          in between lies what may be copied at once, at most that of one sample
    now ──────────── paid until          over the rate: nothing until then

A debt is never forgotten, so that the rate holds however large the single copies are; but at a higher rate it is paid
sooner: a throttle that made a copy wait for an hour is not to stop the next one, which has another.
"""

from __future__ import annotations

from typing import Final

from braidlog.core.clock import Clock
from braidlog.core.quota import DEFAULT_WINDOW, QuotaWindow, SampledRate

UNLIMITED: Final = 2**63 - 1
# Less than what comes in this time is not worth a request.
_LEAST_S: Final = 0.1
# Who waits looks again after this time, since the rate may be another one by then.
_LONGEST_WAIT_S: Final = 0.5


class ReplicationQuota:
    """Shared by all replicas that are throttled for the same reason on a broker."""

    def __init__(self, clock: Clock, window: QuotaWindow = DEFAULT_WINDOW) -> None:
        self._clock = clock
        self._credit_s = window.sample_ms / 1000.0
        self._sampled = SampledRate(window)
        self._paid_until = float("-inf")
        self._limit = UNLIMITED

    @property
    def limit(self) -> int:
        """Bytes a second; 0 stops all copying."""
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        now = self._clock.monotonic()
        if limit > self._limit > 0 and self._paid_until > now:
            self._paid_until = now + (self._paid_until - now) * self._limit / limit
        self._limit = limit

    def allowance(self) -> int:
        """Bytes that may be copied now; 0 while the rate is exceeded."""
        now = self._clock.monotonic()
        if self._limit <= 0 or self._paid_until > now:
            return 0
        unused_s = min(now - self._paid_until, self._credit_s)
        return max(int(self._limit * max(unused_s, _LEAST_S)), 1)

    def wait_s(self) -> float:
        """How long until it is worth to ask again."""
        if self._limit <= 0:
            return _LONGEST_WAIT_S
        return min(max(self._paid_until - self._clock.monotonic(), 0.0), _LONGEST_WAIT_S)

    def record(self, size: int) -> None:
        """So many bytes were copied. They count at the rate of now: a lower one holds from the next copy on."""
        now = self._clock.monotonic()
        self._sampled.record(size, int(now * 1000))
        if self._limit > 0:
            self._paid_until = max(self._paid_until, now - self._credit_s) + size / self._limit

    def byte_rate(self) -> float:
        """Bytes a second over the last samples."""
        return self._sampled.per_second_since_first(int(self._clock.monotonic() * 1000))


def is_listed(throttled: tuple[str, ...], partition: int, broker_id: int) -> bool:
    """Whether `leader.replication.throttled.replicas`, or that of followers, names a replica: `*`, or 0:1,1:2."""
    for each in throttled:
        text = each.strip()
        if text == "*" or text == f"{partition}:{broker_id}":
            return True
        first, colon, second = text.partition(":")
        # Numbers may have leading zeros.
        if colon and first.isdecimal() and second.isdecimal() and (int(first), int(second)) == (partition, broker_id):
            return True
    return False
