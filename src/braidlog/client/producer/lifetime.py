"""How a producer ends: closed, forgotten by the program, with the program, or left behind by a fork.

    closed           what is left is sent for as long as close() allows
    forgotten        what is left is sent, then the engine's thread ends by itself
    program ends     what is left is sent for EXIT_FLUSH_S at most; a warning counts what was not
    fork             the child has neither the thread nor the records: calls that wait fail

A `ProducerLifetime` has everything of a producer but the object that the program holds, so that it can outlive that.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from braidlog.client.errors import ClosedError, RequestTimeout
from braidlog.client.exit_handlers import at_exit
from braidlog.client.producer.transactions.states import State

if TYPE_CHECKING:
    from braidlog.client.metadata import Metadata
    from braidlog.client.network.engine import Engine
    from braidlog.client.network.nodes import Nodes
    from braidlog.client.producer.accumulator.record_accumulator import RecordAccumulator
    from braidlog.client.producer.produce_response_handler import IncompleteBatches
    from braidlog.client.producer.send_pipeline import SendPipeline
    from braidlog.client.producer.sender import Sender
    from braidlog.client.producer.transactions.transaction_manager import TransactionManager

log = logging.getLogger("braidlog.client")

# At the end of a program: for what is not acknowledged yet, of all its producers together.
EXIT_FLUSH_S: Final = 10.0
# Of an open transaction that a closing producer aborts.
_ABORT_S: Final = 30.0
_GRACE_S: Final = 0.5
_OPEN_STATES: Final = frozenset({State.IN_TRANSACTION, State.ABORTABLE_ERROR})


class ProducerLifetime:
    def __init__(
        self,
        engine: Engine,
        accumulator: RecordAccumulator,
        incomplete_batches: IncompleteBatches,
        sender: Sender,
        metadata: Metadata,
        nodes: Nodes,
        transactions: TransactionManager | None,
        pipeline: SendPipeline | None,
    ) -> None:
        self._engine = engine
        self._accumulator = accumulator
        self._incomplete_batches = incomplete_batches
        self._sender = sender
        self._metadata = metadata
        self._nodes = nodes
        self._transactions = transactions
        self._pipeline = pipeline
        # Nothing is accepted any more; what was accepted may still be under way.
        self.is_closed = False
        engine.on_death.append(self._on_engine_death)
        _living.add(self)

    # Closed

    def close(self, timeout: float | None) -> None:
        """Send what is left, then end; safe to call twice, from any thread, from a callback and after a fork."""
        if self.is_closed:
            return
        self._refuse("this producer is closed; make a new one")
        with self._accumulator.lock:
            self._accumulator.pool.wake_all_waiters()
        if self._engine.is_current or not self._engine_lives():
            # A callback cannot wait for the thread that it runs on; after its end there is none.
            timeout = 0.0
        clock = self._accumulator.clock
        deadline = None if timeout is None else clock.monotonic() + timeout
        try:
            if timeout is None or timeout > 0:
                self._close_transactions(_ABORT_S if timeout is None else timeout)
                self._incomplete_batches.wait(None if deadline is None else max(deadline - clock.monotonic(), 0.0))
        finally:
            self._end(
                "the producer was closed before this record was acknowledged, and whether a broker has it is not "
                "known; give close() more time, or flush() before it"
            )

    def _close_transactions(self, timeout_s: float) -> None:
        if self._transactions is not None:
            # It ends in time by itself, unless a callback of the program's keeps the engine, which may be for ever.
            with suppress(RequestTimeout):
                self._engine.run(self._transactions.close(timeout_s), timeout_s + _GRACE_S)

    def _refuse(self, why: str) -> None:
        self.is_closed = True
        self._accumulator.refuse(ClosedError(why))

    def _end(self, why: str, *, quietly: bool = False) -> None:
        _living.discard(self)
        if self._accumulator.has_incomplete:
            self._incomplete_batches.fail_all(ClosedError(why), quietly=quietly)
        # If it was closed meanwhile, the rest is done.
        with suppress(ClosedError):
            self._engine.soon(self._sender.close)
            self._engine.soon(self._metadata.close)
            self._engine.soon(self._nodes.close)
        self._engine.close()
        if self._pipeline is not None:
            self._pipeline.close()

    def _engine_lives(self) -> bool:
        try:
            self._engine.check_usable()
        except ClosedError:
            return False
        return True

    def _on_engine_death(self, death: ClosedError) -> None:
        """The engine's thread failed: nothing may wait for it any more."""
        _living.discard(self)
        self.is_closed = True
        self._accumulator.refuse(death)
        self._accumulator.guard.gone = death
        # Transactions have no engine to go on with.
        with suppress(ClosedError):
            self._incomplete_batches.fail_all(death)
        # With what is left of the loop.
        with suppress(Exception):
            self._nodes.close()

    # Forgotten

    def abandon(self) -> None:
        """The program dropped the producer without closing it; it may still wait for its deliveries.

        Called by a finalizer, which comes at any point of any thread: it takes no lock of the queues and never waits.
        """
        if self.is_closed:
            return
        self._refuse("this producer is being collected")
        with suppress(ClosedError):
            self._engine.soon(self._finish)

    def _finish(self) -> None:
        self._engine.spawn("send what a forgotten producer left", self._finish_and_end())

    async def _finish_and_end(self) -> None:
        try:
            if self._transactions is not None:
                self._warn_of_transaction("its producer was forgotten")
                await self._transactions.close(_ABORT_S)
            # Every record ends within delivery.timeout.ms, and so does this.
            await self._incomplete_batches.drained()
        finally:
            self._end("the producer was forgotten, and its thread ended, before this record was acknowledged")

    # The program ends

    def flush_soon(self) -> None:
        """Let nothing linger: the program waits."""
        self._accumulator.begin_flush()

    def exit(self, deadline: float) -> None:
        """Send what is left until the deadline, then say what was not sent, and end."""
        began = time.monotonic()
        if not self.is_closed:
            self._refuse("this producer was closed at the end of the program")
            if self._transactions is not None:
                self._warn_of_transaction("the program ended")
                with suppress(ClosedError):
                    self._close_transactions(self._until(deadline))
        self._incomplete_batches.wait(self._until(deadline))
        self._warn_of_unsent(time.monotonic() - began)
        self._end("the program ended before this record was acknowledged", quietly=True)

    def _until(self, deadline: float) -> float:
        return max(min(deadline - time.monotonic(), self._accumulator.limits.delivery_timeout_s), 0.0)

    def _warn_of_transaction(self, when: str) -> None:
        transactions = self._transactions
        if transactions is not None and transactions.state in _OPEN_STATES:
            log.warning(
                "transactional id %s: %s within a transaction, which is aborted now: its records are not delivered; "
                "call commit_transaction() first",
                transactions.transactional_id,
                when,
            )

    def _warn_of_unsent(self, waited_s: float) -> None:
        with self._accumulator.lock:
            pending = list(self._accumulator.incomplete.values())
        if not pending:
            return
        records = Counter[str]()
        for batch in pending:
            records[batch.topic] += batch.count
        problem = next((batch.last_problem for batch in pending if batch.last_problem is not None), None)
        log.warning(
            "the program ends, and %d records were not delivered (%s), for which it waited %.1f s: %s. "
            "Call flush() or close() before the end, and look at the deliveries",
            records.total(),
            ", ".join(f"{count} to {topic}" for topic, count in records.most_common()),
            waited_s,
            # That no broker at all answers explains more than what was last seen of one of them.
            self._metadata.problem or problem or "no broker acknowledged them yet",
        )

    # A fork

    def leave_behind(self) -> None:
        """In the child: the engine's thread and the records are the parent's."""
        self.is_closed = True
        gone = ClosedError("this producer was made before a fork, and its thread stayed behind; make a new one")
        self._accumulator.refuse(gone)
        self._accumulator.guard.gone = gone


# Not yet ended: those in use, and the forgotten ones that still have records.
_living: set[ProducerLifetime] = set()


def _after_fork() -> None:
    for each in _living:
        each.leave_behind()
    _living.clear()


def _at_exit() -> None:
    """End what the program did not end itself, all of it within one deadline."""
    deadline = time.monotonic() + EXIT_FLUSH_S
    for each in list(_living):
        each.flush_soon()
    for each in list(_living):
        try:
            each.exit(deadline)
        except KeyboardInterrupt:
            # Ctrl-C: the program should end now, and the log still says what was not sent.
            deadline = 0.0
            each.exit(deadline)
        except Exception:
            # The other producers have records as well.
            log.exception("a producer could not be ended with the program")


# With the import, not with the first producer: what the program registers itself is called before this, and may send.
at_exit(_at_exit)
os.register_at_fork(after_in_child=_after_fork)
