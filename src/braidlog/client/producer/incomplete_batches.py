"""What was accepted and is not done yet: waiting for it, or giving it up."""

from __future__ import annotations

import time

from braidlog.client.errors import ConcurrentUseError
from braidlog.client.producer.accumulator.producer_batch import notify_waiters
from braidlog.client.producer.accumulator.record_accumulator import RecordAccumulator
from braidlog.client.producer.async_delivery import latch_released
from braidlog.client.producer.produce_response_handler import ProduceResponseHandler


class IncompleteBatches:
    """Its callers may be on any thread; `drained` is for event loops, `wait` for threads."""

    def __init__(self, accumulator: RecordAccumulator, response_handler: ProduceResponseHandler) -> None:
        self._accumulator = accumulator
        self._response_handler = response_handler

    @property
    def has_pending(self) -> bool:
        return self._accumulator.has_incomplete

    def refuse(self, error: Exception | None) -> None:
        self._accumulator.refuse(error)

    def begin_transaction(self) -> None:
        self._accumulator.begin_transaction()

    def wait(self, timeout_s: float | None) -> bool:
        """Until everything accepted before this call is done; false when time was too short."""
        if self._accumulator.guard.is_engine_thread():
            raise ConcurrentUseError(
                "a delivery callback cannot flush: it runs on the thread that would have to send; flush elsewhere"
            )
        self._accumulator.guard.check()
        latch = self._accumulator.flush_latch()
        if latch is None:
            return True
        self._accumulator.begin_flush()
        direct = self._accumulator.guard.direct
        try:
            if direct is not None:
                began = time.monotonic()
                direct.read_until_over(latch, timeout_s)
                timeout_s = None if timeout_s is None else timeout_s - (time.monotonic() - began)
            return latch.wait(timeout_s)
        finally:
            self._accumulator.end_flush()

    async def drained(self) -> None:
        """As `wait`, without end."""
        self._accumulator.guard.check()
        latch = self._accumulator.flush_latch()
        if latch is None:
            return
        self._accumulator.begin_flush()
        self._accumulator.guard.let_engine_read()
        try:
            await latch_released(latch)
        finally:
            self._accumulator.end_flush()

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
        notify_waiters(self._accumulator.pending_sends.fail_all(error))
        failed, to_notify = self._accumulator.abort_batches(error, unsent_only)
        self._response_handler.report_failed(failed, error, quietly=quietly)
        notify_waiters(to_notify)
