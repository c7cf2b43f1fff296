"""A producer's id and epoch, and the sequences by which brokers find duplicates (hot: compiled by mypyc).

An idempotent producer has an id and an epoch; every batch of a partition carries the sequence of its first record. A
batch that is sent again keeps its sequence, so that a broker which has it already says so instead of writing it twice.

    sequence lost for good     the broker forgot us, or a batch failed and left a gap: the epoch is bumped, and what the
                               partition still has under way is numbered from 0 again (KIP-360)
    sequence in doubt          a batch ran out of time after it was sent: nothing new is taken from the partition until
                               its other batches under way are answered; only then is it known whether there is a gap

Partitions change to a new id or epoch one by one, each when nothing of it is under way under the old one.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from braidlog.client.producer.accumulator.partition_queue import PartitionQueue
from braidlog.client.producer.accumulator.producer_batch import NO_SEQUENCE, ProducerBatch
from braidlog.core.protocol_errors import OutOfOrderSequenceNumberError, ProtocolError, UnknownProducerIdError

NO_PRODUCER: Final = -1
LAST_EPOCH: Final = 0x7FFF
_LAST_SEQUENCE: Final = 0x7FFFFFFF
# Batches of a producer whose offsets a broker remembers: it can answer for no older one that comes again.
_REMEMBERED: Final = 5


def sequence_plus(sequence: i64, increment: i64) -> i64:
    """Sequences count 0 … 2^31 - 1 and then from 0 again."""
    return (sequence + increment) & _LAST_SEQUENCE


class ProducerIdState:
    def __init__(self, enabled: bool, transactional: bool) -> None:
        # Whether sequences are used at all.
        self.enabled = enabled
        self.transactional = transactional
        self.producer_id: i64 = NO_PRODUCER
        self.epoch: i64 = -1
        # The epochs are used up, or a partition lost its sequence: the sender has to get another id.
        self.wants_id = enabled and not transactional
        # Partitions that wait for that id to be numbered anew.
        self._renumbered: list[PartitionQueue] = []

    def set_producer_id_and_epoch(self, producer_id: int, epoch: int) -> None:
        """From now on; each partition starts from sequence 0 once nothing of it is under way under the old one."""
        self.producer_id = producer_id
        self.epoch = epoch
        self.wants_id = False
        waiting = self._renumbered
        self._renumbered = []
        for queue in waiting:
            self._reset_sequences(queue)

    # Taking

    def may_drain(self, queue: PartitionQueue) -> bool:
        """Whether the queue's first batch may be sent: retries go first, in order, before anything new."""
        if not self.enabled:
            return True
        first = queue.batches[0]
        if first.base_sequence != NO_SEQUENCE:
            # Those behind it wait until it is done: a broker refuses them before it has the first.
            return not queue.in_flight or queue.in_flight[0] is first
        if self._is_stale(queue) or queue.last_acked_sequence == NO_SEQUENCE:
            # A broker that knows nothing of this id takes any sequence for the first: it must get the true one alone.
            return not queue.in_flight
        if queue.unresolved:
            return False
        return not queue.in_flight or queue.sequenced - queue.in_flight[0].number < _REMEMBERED

    def _is_stale(self, queue: PartitionQueue) -> bool:
        return queue.producer_id != self.producer_id or queue.producer_epoch != self.epoch

    def assign_sequence(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        """Give a batch that is taken for the first time its sequence."""
        if not self.enabled or batch.base_sequence != NO_SEQUENCE:
            return
        if self._is_stale(queue):
            self._reset_sequences(queue)
        batch.set_producer_state(queue.producer_id, queue.producer_epoch, queue.next_sequence)
        batch.transactional = self.transactional
        batch.number = queue.sequenced
        queue.sequenced += 1
        queue.next_sequence = sequence_plus(queue.next_sequence, batch.count)
        queue.in_flight.append(batch)

    def _reset_sequences(self, queue: PartitionQueue) -> None:
        """Number what is under way from 0 again, under the present id and epoch."""
        queue.producer_id = self.producer_id
        queue.producer_epoch = self.epoch
        queue.last_acked_sequence = NO_SEQUENCE
        queue.unresolved = False
        sequence: i64 = 0
        for batch in queue.in_flight:
            batch.set_producer_state(self.producer_id, self.epoch, sequence)
            batch.sequence_reset = True
            sequence = sequence_plus(sequence, batch.count)
        queue.next_sequence = sequence

    # Answers

    def acknowledged(self, queue: PartitionQueue, batch: ProducerBatch, base_offset: i64) -> None:
        if not self.enabled:
            return
        if batch.producer_id == queue.producer_id and batch.producer_epoch == queue.producer_epoch:
            last = sequence_plus(batch.base_sequence, batch.count - 1)
            queue.last_acked_sequence = last if last > queue.last_acked_sequence else queue.last_acked_sequence
            if base_offset >= 0:
                queue.last_acked_offset = max(queue.last_acked_offset, base_offset + batch.count - 1)
        self._forget(queue, batch)

    def may_retry(
        self, queue: PartitionQueue, batch: ProducerBatch, error: ProtocolError, log_start_offset: i64
    ) -> bool:
        """Whether the batch may be sent again after an error about sequences; bumps the epoch if necessary."""
        if isinstance(error, UnknownProducerIdError):
            if log_start_offset == -1 or batch.sequence_reset:
                return True
            if self.transactional:
                if queue.last_acked_offset < log_start_offset:
                    # Retention took what this producer wrote, and the broker its memory of it.
                    self._reset_sequences(queue)
                    return True
                return False
            self.bump_epoch(queue)
            return True
        if isinstance(error, OutOfOrderSequenceNumberError):
            is_next = self._is_next(queue, batch.base_sequence)
            if not queue.unresolved and (batch.sequence_reset or not is_next):
                # One before it is still to come.
                return True
            if self.transactional:
                return False
            if not queue.unresolved or (queue.in_flight and queue.in_flight[0] is batch):
                self.bump_epoch(queue)
            return True
        return error.retriable

    def _is_next(self, queue: PartitionQueue, sequence: i64) -> bool:
        if queue.last_acked_sequence == NO_SEQUENCE:
            return sequence == 0
        return sequence == sequence_plus(queue.last_acked_sequence, 1)

    def failed(self, queue: PartitionQueue, batch: ProducerBatch, in_doubt: bool) -> None:
        """A batch ended without an acknowledgement; `in_doubt`: the broker may have it all the same."""
        if not self.enabled or batch.base_sequence == NO_SEQUENCE:
            return
        self._forget(queue, batch)
        is_current = batch.producer_id == queue.producer_id and batch.producer_epoch == queue.producer_epoch
        if not is_current:
            return
        if in_doubt:
            queue.unresolved = True
            self.resolve(queue)
        elif self.transactional:
            self._close_sequence_gap(queue, batch)
        else:
            self.bump_epoch(queue)

    def resolve(self, queue: PartitionQueue) -> None:
        """Of a partition in doubt nothing is under way any more: either all was written, or there is a gap."""
        if not queue.unresolved or queue.in_flight:
            return
        if self._is_next(queue, queue.next_sequence):
            queue.unresolved = False
        elif not self.transactional:
            self.bump_epoch(queue)

    def bump_epoch(self, queue: PartitionQueue) -> None:
        """A new epoch, under which the partition starts from 0; an id whose epochs are used up needs a new one."""
        if self.transactional:
            return
        if queue.producer_id == self.producer_id and queue.producer_epoch == self.epoch:
            if self.epoch >= LAST_EPOCH:
                self.wants_id = True
                self._renumbered.append(queue)
                return
            self.epoch += 1
        self._reset_sequences(queue)

    def _close_sequence_gap(self, queue: PartitionQueue, failed: ProducerBatch) -> None:
        """The broker never wrote the failed batch: those behind it take its place."""
        for batch in queue.in_flight:
            if batch.base_sequence > failed.base_sequence:
                batch.set_producer_state(batch.producer_id, batch.producer_epoch, batch.base_sequence - failed.count)
                batch.sequence_reset = True
        queue.next_sequence = (queue.next_sequence - failed.count) & _LAST_SEQUENCE

    def _forget(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        if batch in queue.in_flight:
            queue.in_flight.remove(batch)
        self.resolve(queue)

    def replace(self, queue: PartitionQueue, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """A batch was split: the parts share its sequences."""
        if not self.enabled or batch.base_sequence == NO_SEQUENCE:
            return
        at = queue.in_flight.index(batch) if batch in queue.in_flight else len(queue.in_flight)
        sequence = batch.base_sequence
        for part in parts:
            part.set_producer_state(batch.producer_id, batch.producer_epoch, sequence)
            part.sequence_reset = batch.sequence_reset
            part.transactional = batch.transactional
            part.number = batch.number
            sequence = sequence_plus(sequence, part.count)
        queue.in_flight[at : at + 1] = parts
