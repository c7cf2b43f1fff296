"""What was accepted and is not done yet: waiting for it, or giving it up."""

from __future__ import annotations

import time

from braidlog.client.errors import ConcurrentUseError
from braidlog.client.producer.accumulator import Accumulator
from braidlog.client.producer.admission import fail_seats
from braidlog.client.producer.awaiting import rung
from braidlog.client.producer.batch import tell
from braidlog.client.producer.draining import fail_all
from braidlog.client.producer.outcomes import Outcomes


class InProgress:
    """Its callers may be on any thread; `drained` is for event loops, `wait` for threads."""

    def __init__(self, accumulator: Accumulator, outcomes: Outcomes) -> None:
        self._accumulator = accumulator
        self._outcomes = outcomes

    @property
    def has_pending(self) -> bool:
        return self._accumulator.has_pending

    def refuse(self, error: Exception | None) -> None:
        self._accumulator.refuse(error)

    def begin_epoch(self) -> None:
        self._accumulator.begin_epoch()

    def wait(self, timeout_s: float | None) -> bool:
        """Until everything accepted before this call is done; false when time was too short."""
        if self._accumulator.guard.is_engine_thread():
            raise ConcurrentUseError(
                "a delivery callback cannot flush: it runs on the thread that would have to send; flush elsewhere"
            )
        self._accumulator.guard.check()
        bell = self._accumulator.bell()
        if bell is None:
            return True
        self._accumulator.stop_lingering(True)
        direct = self._accumulator.guard.direct
        try:
            if direct is not None:
                began = time.monotonic()
                direct.read_until_over(bell, timeout_s)
                timeout_s = None if timeout_s is None else timeout_s - (time.monotonic() - began)
            return bell.wait(timeout_s)
        finally:
            self._accumulator.stop_lingering(False)

    async def drained(self) -> None:
        """As `wait`, without end."""
        self._accumulator.guard.check()
        bell = self._accumulator.bell()
        if bell is None:
            return
        self._accumulator.stop_lingering(True)
        self._accumulator.guard.let_engine_read()
        try:
            await rung(bell)
        finally:
            self._accumulator.stop_lingering(False)

    def abort_unsent(self, error: Exception) -> None:
        """Fail what no broker can have; the rest goes on, retries included."""
        self._fail(error, unsent_only=True)

    def fail_all(self, error: Exception, *, quietly: bool = False) -> None:
        """Fail everything; answers that still come are ignored. `quietly`: the log was told already."""
        self._fail(error, unsent_only=False, quietly=quietly)

    def end(self, error: Exception) -> None:
        """Nothing can be sent any more."""
        self.refuse(error)
        self.fail_all(error)

    def _fail(self, error: Exception, *, unsent_only: bool, quietly: bool = False) -> None:
        for topic in list(self._accumulator.seats):
            tell(fail_seats(self._accumulator, topic, error))
        failed, to_notify = fail_all(self._accumulator, error, unsent_only)
        self._outcomes.tell_failed(failed, error, quietly=quietly)
        tell(to_notify)
