"""Which batches go to which broker now, and which have run out of time (hot: compiled by mypyc)."""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from braidlog.client.errors import DeliveryTimeoutError
from braidlog.client.producer.accumulator.partition_queue import PartitionQueue
from braidlog.client.producer.accumulator.producer_batch import NO_SEQUENCE, ProducerBatch, Waiter
from braidlog.client.producer.accumulator.record_accumulator import RecordAccumulator

NEVER: Final = 1e18
# A broker that is not connected.
_UNKNOWN: Final = -1


class Drained:
    """What a look at the queues yields: batches by broker, and what has to happen for the others."""

    def __init__(self) -> None:
        self.requests: dict[int, list[ProducerBatch]] = {}
        # Brokers with something ready that there is no connection to.
        self.unconnected: list[int] = []
        # Topics with something ready whose leader is not known.
        self.leaderless: list[str] = []
        # When to look again, if nothing happens before.
        self.look_at = NEVER
        # Ready, but the request was full.
        self.left_over = False


def drain(self: RecordAccumulator, now: float, capacity: dict[int, int]) -> Drained:
    """Take at most one batch a partition, and one request a broker; `capacity` has the requests each may still get."""
    found = Drained()
    producer_id_state = self.producer_id_state
    if producer_id_state.enabled and (producer_id_state.wants_id or producer_id_state.producer_id < 0):
        return found
    sizes: dict[int, int] = {}
    waiting: list[PartitionQueue] = []
    served: list[PartitionQueue] = []
    self.lock.acquire()
    try:
        eager = self.flushing > 0 or len(self.pool.waiters) > 0 or self.limits.linger_s <= 0.0
        for queue in self.active:
            if len(queue.batches) == 0:
                queue.is_active = False
                continue
            first = queue.batches[0]
            if not _is_due(self, queue, first, now, eager, found):
                waiting.append(queue)
                continue
            room = capacity.get(queue.leader, _UNKNOWN)
            if room <= 0:
                if room == _UNKNOWN and queue.leader not in found.unconnected:
                    found.unconnected.append(queue.leader)
                waiting.append(queue)
                continue
            size: i64 = first.raw_size if first.closed or first.writer is None else len(first.writer)
            taken: i64 = sizes.get(queue.leader, 0)
            if taken > 0 and taken + size > self.limits.max_request:
                found.left_over = True
                waiting.append(queue)
                continue
            sizes[queue.leader] = taken + size + 1
            _take(self, queue, first)
            if queue.leader not in found.requests:
                found.requests[queue.leader] = []
            found.requests[queue.leader].append(first)
            if len(queue.batches) > 0:
                served.append(queue)
            else:
                queue.is_active = False
        # Who was served goes behind those who still wait.
        waiting.extend(served)
        self.active = waiting
        # Whatever changed before was seen here.
        self.must_wake = False
    finally:
        self.lock.release()
    return found


def _is_due(
    self: RecordAccumulator, queue: PartitionQueue, first: ProducerBatch, now: float, eager: bool, found: Drained
) -> bool:
    if first.retry_at > now:
        found.look_at = min(found.look_at, first.retry_at)
        return False
    if not (eager or first.closed or len(queue.batches) > 1):
        ready_at = first.created + self.limits.linger_s
        if ready_at > now:
            found.look_at = min(found.look_at, ready_at)
            return False
    if queue.leader < 0:
        if queue.topic.name not in found.leaderless:
            found.leaderless.append(queue.topic.name)
        return False
    if self.producer_id_state.enabled:
        if not self.producer_id_state.may_drain(queue):
            return False
    elif self.limits.max_in_flight == 1 and queue.under_way > 0:
        # The answer may be that it has to go again.
        return False
    transactions = self.transactions
    return transactions is None or transactions.may_send(queue.topic.name, queue.partition)


def _take(self: RecordAccumulator, queue: PartitionQueue, batch: ProducerBatch) -> None:
    if not batch.closed:
        self.close_batch(queue, batch)
    queue.batches.popleft()
    self.backlog -= batch.raw_size
    self.producer_id_state.assign_sequence(queue, batch)
    batch.in_flight = True
    batch.attempts += 1
    queue.under_way += 1


def expire(self: RecordAccumulator, now: float) -> tuple[list[ProducerBatch], list[Waiter]]:
    """Fail what was not acknowledged in time, in flight or not."""
    expired: list[ProducerBatch] = []
    to_notify: list[Waiter] = []
    self.lock.acquire()
    try:
        for batch in list(self.incomplete.values()):
            if batch.is_placeholder:
                continue
            if batch.expires > now:
                break
            expired.append(batch)
        for batch in expired:
            _drop(self, batch, _out_of_time(self, batch), to_notify)
    finally:
        self.lock.release()
    return expired, to_notify


def next_expiry(self: RecordAccumulator) -> float:
    for batch in self.incomplete.values():
        if not batch.is_placeholder:
            return batch.expires
    return NEVER


def _out_of_time(self: RecordAccumulator, batch: ProducerBatch) -> DeliveryTimeoutError:
    tried = "it was never sent" if batch.attempts == 0 else f"sent {batch.attempts} times"
    doubt = "; the broker may have it all the same" if batch.in_flight else ""
    reason = "" if batch.last_problem is None else f"; last problem: {batch.last_problem}"
    return DeliveryTimeoutError(
        f"{batch.count} records for {batch.topic}-{batch.partition} were not acknowledged within "
        f"delivery.timeout.ms ({self.limits.delivery_timeout_s:g} s): {tried}{doubt}{reason}"
    )


def _drop(self: RecordAccumulator, batch: ProducerBatch, error: Exception, to_notify: list[Waiter]) -> None:
    """Under the lock: fail a batch wherever it is."""
    queue = batch.queue
    if queue is not None:
        if not batch.in_flight and batch in queue.batches:
            queue.batches.remove(batch)
            if batch.closed:
                self.backlog -= batch.raw_size
        self.producer_id_state.failed(queue, batch, in_doubt=batch.attempts > 0)
    waiters = self.finish(batch, -1, -1, error, None)
    if waiters is not None:
        to_notify.extend(waiters)


def fail_all(self: RecordAccumulator, error: Exception, unsent_only: bool) -> tuple[list[ProducerBatch], list[Waiter]]:
    """Fail everything, or what was never sent; what a broker may have keeps its place in the sequence."""
    failed: list[ProducerBatch] = []
    to_notify: list[Waiter] = []
    self.lock.acquire()
    try:
        for batch in list(self.incomplete.values()):
            if unsent_only and (batch.in_flight or batch.base_sequence != NO_SEQUENCE):
                continue
            failed.append(batch)
            _drop(self, batch, error, to_notify)
    finally:
        self.lock.release()
    return failed, to_notify
