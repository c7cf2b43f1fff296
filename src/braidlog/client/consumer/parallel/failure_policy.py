"""What becomes of a record whose handler fails: it is tried again after a while, and in the end what was asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from braidlog.client.consumer.record import ConsumerRecord

# Called with the record and the last error; may be a coroutine function if the handler is one. What it returns from
# counts as done, what it raises stops the consumer.
DeadLetter = Callable[[ConsumerRecord, Exception], Any]
OnFailure = Literal["raise", "skip"] | DeadLetter


class FailurePolicy(NamedTuple):
    # Attempts after the first; None for as many as it takes.
    retries: int | None = 0
    # Before the first retry; doubles with each until the longest.
    backoff_s: float = 0.1
    longest_backoff_s: float = 10.0
    on_failure: OnFailure = "raise"

    def check(self) -> None:
        if self.retries is not None and self.retries < 0:
            raise ValueError(f"retries is {self.retries}: give 0 or more, or None to go on for ever")
        if not (callable(self.on_failure) or self.on_failure in ("raise", "skip")):
            raise ValueError(f"on_failure is {self.on_failure!r}: give 'raise', 'skip' or a function")

    def delay_after(self, attempts: int) -> float | None:
        """How long to wait after so many failed attempts; None where there are to be no more."""
        if self.retries is not None and attempts > self.retries:
            return None
        # Two to a power that a float can hold.
        return min(self.backoff_s * 2.0 ** min(attempts - 1, 60), self.longest_backoff_s)
