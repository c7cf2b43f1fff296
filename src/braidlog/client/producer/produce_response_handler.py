"""What becomes of a batch that was sent: done, failed, split, or sent again.

acknowledged, or known already     done
too large, several records         split in two or more, which are sent instead
sequence lost                      the producer id state decides (KIP-360)
retriable, lost connection         sent again after a pause that doubles, until delivery.timeout.ms
anything else                      failed
"""

from __future__ import annotations

import logging
from random import Random
from typing import Final, Protocol

from braidlog.client.broker_errors import broker_error
from braidlog.client.errors import ClientError, ConcurrentUseError
from braidlog.client.metadata import Metadata
from braidlog.client.producer.accumulator.producer_batch import NO_SEQUENCE, ProducerBatch, notify_waiters
from braidlog.client.producer.accumulator.record_accumulator import RecordAccumulator
from braidlog.client.producer.async_delivery import latch_released
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.wire.generated.produce import PartitionProduceResponse

log = logging.getLogger("braidlog.client")

_JITTER: Final = 0.2
# Partitions that one line names.
_MOST_PARTITIONS_NAMED: Final = 5
_TOO_LARGE: Final = (errors.MessageTooLargeError.code, errors.RecordListTooLargeError.code)
# The broker is not, or not yet, the one to ask.
_STALE_METADATA: Final = (
    errors.NotLeaderOrFollowerError,
    errors.UnknownTopicOrPartitionError,
    errors.UnknownTopicIdError,
    errors.InconsistentTopicIdError,
    errors.LeaderNotAvailableError,
    errors.ReplicaNotAvailableError,
    errors.KafkaStorageError,
    errors.FencedLeaderEpochError,
    errors.UnknownLeaderEpochError,
    errors.NetworkError,
)
# Whether the broker wrote the batch is open after these.
_IN_DOUBT: Final = (errors.RequestTimedOutError, errors.NotEnoughReplicasAfterAppendError, errors.NetworkError)


class BatchListener(Protocol):
    """Transactions, which fail with any of their batches."""

    def on_batch_failed(self, batch: ProducerBatch, error: Exception) -> None: ...


class ProduceResponseHandler:
    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        *,
        retries: int,
        backoff_s: float,
        longest_backoff_s: float,
        random: Random | None = None,
    ) -> None:
        self._accumulator = accumulator
        self._metadata = metadata
        self._retries = retries
        self._backoff_s = backoff_s
        self._longest_backoff_s = longest_backoff_s
        self._random = random or Random()
        self.transactions: BatchListener | None = None
        self.records_failed = 0
        self.batches_retried = 0
        self.batches_split = 0

    # Responses

    def answered(self, batch: ProducerBatch, answer: PartitionProduceResponse | None) -> None:
        if batch.is_done or batch.parts is not None:
            # It ran out of time meanwhile, and its deliveries have failed.
            return
        if answer is None:
            self._retry_or_fail(batch, errors.UnknownServerError("the broker's response leaves this partition out"), -1)
            return
        code = answer.error_code
        if code in (NONE, errors.DuplicateSequenceNumberError.code):
            # A duplicate was written by an earlier try whose answer got lost.
            self.written(batch, answer.base_offset, answer.log_append_time_ms)
            return
        if code in _TOO_LARGE and batch.count > 1:
            self._split(batch)
            return
        error = broker_error(code, _where(batch), answer.error_message)
        named = {each.batch_index: each.batch_index_error_message or "" for each in answer.record_errors}
        leader = answer.current_leader
        moved = False
        if isinstance(error, _STALE_METADATA):
            if leader is not None and leader.leader_id >= 0:
                before = self._metadata.view
                self._metadata.take_leader(batch.topic, batch.partition, leader.leader_id, leader.leader_epoch)
                moved = self._metadata.view is not before
            self._metadata.request_update()
        self._retry_or_fail(batch, error, answer.log_start_offset, named or None, at_once=moved)

    def unanswered(self, batches: list[ProducerBatch], problem: Exception) -> None:
        """Their request was not written, or its connection ended before the response: a broker may have them or not."""
        for batch in batches:
            if not batch.is_done and batch.parts is None:
                self._retry_or_fail(batch, problem, -1)

    def written(self, batch: ProducerBatch, base_offset: int, append_time_ms: int) -> None:
        self.recovered(batch)
        waiters = self._accumulator.acknowledge(batch, base_offset, append_time_ms)
        notify_waiters(waiters)

    def recovered(self, batch: ProducerBatch) -> None:
        """Its partition works, if it did not before."""
        if not self._metadata.problems.is_empty:
            self._metadata.problems.recovered(_where(batch))

    # Retries

    def _retry_or_fail(
        self,
        batch: ProducerBatch,
        error: Exception,
        log_start_offset: int,
        record_errors: dict[int, str] | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        batch.last_problem = error
        now = self._accumulator.clock.monotonic()
        if now < batch.expires and batch.attempts <= self._retries and self._may_retry(batch, error, log_start_offset):
            self.batches_retried += 1
            pause = 0.0 if at_once else self._pause(batch.attempts)
            self._metadata.problems.failed(_where(batch), error, part_of=f"topic {batch.topic}")
            log.debug("retrying %s in %.3f s: %s", batch, pause, error)
            self._accumulator.reenqueue(batch, now + pause)
        else:
            self.fail(batch, error, record_errors)

    def _may_retry(self, batch: ProducerBatch, error: Exception, log_start_offset: int) -> bool:
        if not isinstance(error, ProtocolError):
            return isinstance(error, ClientError) and error.retriable
        queue = batch.queue
        if queue is None or batch.base_sequence == NO_SEQUENCE:
            return error.retriable
        with self._accumulator.lock:
            return self._accumulator.producer_id_state.may_retry(queue, batch, error, log_start_offset)

    def _pause(self, attempts: int) -> float:
        pause = min(self._backoff_s * 2.0 ** min(attempts - 1, 30), self._longest_backoff_s)
        return pause * self._random.uniform(1 - _JITTER, 1 + _JITTER)

    def fail(self, batch: ProducerBatch, error: Exception, record_errors: dict[int, str] | None = None) -> None:
        accumulator = self._accumulator
        in_doubt = isinstance(error, _IN_DOUBT) or not isinstance(error, ProtocolError)
        with accumulator.lock:
            if batch.queue is not None:
                accumulator.producer_id_state.failed(batch.queue, batch, in_doubt)
            waiters = accumulator.finish(batch, -1, -1, error, record_errors)
        self.report_failed([batch], error)
        notify_waiters(waiters)

    def report_failed(self, batches: list[ProducerBatch], error: Exception, *, quietly: bool = False) -> None:
        """After batches failed for one reason, here or elsewhere; one line for all of them."""
        # Pending sends have no queue yet; their deliveries fail without a line in the log.
        queued = [batch for batch in batches if batch.queue is not None]
        if not queued:
            return
        count = sum(batch.count for batch in queued)
        self.records_failed += count
        if not quietly:
            log.warning("%d records for %s failed: %s", count, _partition_names(queued), error)
        if self.transactions is not None:
            for batch in queued:
                self.transactions.on_batch_failed(batch, error)

    def _split(self, batch: ProducerBatch) -> None:
        self.batches_split += 1
        parts = self._accumulator.split_and_reenqueue(batch)
        log.info(
            "a batch of %d records (%d bytes) is too large for %s-%d; sending it as %d",
            batch.count, batch.raw_size, batch.topic, batch.partition, parts,
        )  # fmt: skip

    def note_unreachable(self, node: int, problem: Exception, since: float) -> None:
        """Log it, and keep it for the errors of records that run out of time."""
        self._metadata.problems.failed(f"broker {node}", problem, since=since)
        for queue in self._accumulator.active:
            if queue.leader == node and queue.batches:
                queue.batches[0].last_problem = problem


class IncompleteBatches:
    """What was accepted and is not done yet: waiting for it, or failing it.

    Any thread may call; `drained` is for event loops, `wait` for threads.
    """

    def __init__(self, accumulator: RecordAccumulator, response_handler: ProduceResponseHandler) -> None:
        self._accumulator = accumulator
        self._response_handler = response_handler

    def wait(self, timeout_s: float | None) -> bool:
        """Until everything accepted before this call is done; false when time was too short."""
        accumulator = self._accumulator
        if accumulator.guard.is_engine_thread():
            raise ConcurrentUseError(
                "a delivery callback cannot flush: it runs on the thread that would have to send; flush elsewhere"
            )
        accumulator.guard.check()
        latch = accumulator.flush_latch()
        if latch is None:
            return True
        accumulator.begin_flush()
        direct = accumulator.guard.direct
        try:
            if direct is not None:
                began = accumulator.clock.monotonic()
                direct.read_until_over(latch, timeout_s)
                timeout_s = None if timeout_s is None else timeout_s - (accumulator.clock.monotonic() - began)
            return accumulator.guard.wait_for(latch.lock, timeout_s)
        finally:
            accumulator.end_flush()

    async def drained(self) -> None:
        """As `wait`, without a timeout."""
        accumulator = self._accumulator
        accumulator.guard.check()
        latch = accumulator.flush_latch()
        if latch is None:
            return
        accumulator.begin_flush()
        accumulator.guard.let_engine_read()
        try:
            await latch_released(latch)
        finally:
            accumulator.end_flush()

    def abort_unsent(self, error: Exception) -> None:
        """Fail what no broker can have; the rest goes on, retries included."""
        self._fail(error, unsent_only=True)

    def fail_all(self, error: Exception, *, quietly: bool = False) -> None:
        """Fail everything; responses that still come are ignored. `quietly`: the error was logged already."""
        self._fail(error, unsent_only=False, quietly=quietly)

    def end(self, error: Exception) -> None:
        """Nothing can be sent any more."""
        self._accumulator.refuse(error)
        self.fail_all(error)

    def _fail(self, error: Exception, *, unsent_only: bool, quietly: bool = False) -> None:
        notify_waiters(self._accumulator.pending_sends.fail_all(error))
        failed, to_notify = self._accumulator.abort_batches(error, unsent_only)
        self._response_handler.report_failed(failed, error, quietly=quietly)
        notify_waiters(to_notify)


def _partition_names(batches: list[ProducerBatch]) -> str:
    places = list(dict.fromkeys(f"{batch.topic}-{batch.partition}" for batch in batches))
    more = (
        f" and {len(places) - _MOST_PARTITIONS_NAMED} more partitions" if len(places) > _MOST_PARTITIONS_NAMED else ""
    )
    return ", ".join(places[:_MOST_PARTITIONS_NAMED]) + more


def _where(batch: ProducerBatch) -> str:
    return f"partition {batch.partition} of topic {batch.topic}"
