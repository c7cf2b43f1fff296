"""A transactional id as its last record tells it, and what the next record would be."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from braidlog.coordinator.txn.transaction_state import IDLE, PREPARED, TransactionState, check_transition
from braidlog.core.types import TopicPartition

NO_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
# The last epoch that a producer may hold; the one above it is kept for fencing that producer.
LAST_EPOCH: Final = 32_766

# What the client that began or ended the transaction speaks: 2 means that each end moves the epoch (KIP-890).
TV_0: Final = 0
TV_2: Final = 2


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """One value per transactional id, replaced as a whole: it is exactly what the log holds."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition]
    updated_ms: int
    started_ms: int = NO_TIME
    # The epoch before the last change, if the same producer may still ask with it (a retry whose answer got lost).
    last_epoch: int = NO_EPOCH
    # The producer id before the last change, if that change replaced it.
    previous_id: int = NO_ID
    # The producer id that begins when this transaction is complete, since the epochs of the present one are used up.
    next_id: int = NO_ID
    client_version: int = TV_0

    @property
    def prepared(self) -> bool:
        return self.state in PREPARED

    @property
    def idle(self) -> bool:
        return self.state in IDLE

    @property
    def commits(self) -> bool:
        return self.state in (TransactionState.PrepareCommit, TransactionState.CompleteCommit)

    @property
    def exhausted(self) -> bool:
        return self.producer_epoch >= LAST_EPOCH

    # What may come next. Each gives the value that is to be written down.

    def initialised(
        self, producer_id: int, producer_epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> TransactionMetadata:
        """A producer starts (again) under this id."""
        check_transition(self.transactional_id, self.state, TransactionState.Empty)
        previous_id = NO_ID
        if producer_id != self.producer_id:
            previous_id = self.producer_id
        elif producer_epoch == self.producer_epoch:
            # The answer is only told again, and may be a third time.
            previous_id = self.previous_id
        return TransactionMetadata(
            self.transactional_id,
            producer_id,
            producer_epoch,
            timeout_ms,
            TransactionState.Empty,
            frozenset(),
            now_ms,
            last_epoch=last_epoch,
            previous_id=previous_id,
        )

    def with_partitions(
        self, added: frozenset[TopicPartition], client_version: int, now_ms: int
    ) -> TransactionMetadata:
        check_transition(self.transactional_id, self.state, TransactionState.Ongoing)
        return replace(
            self,
            state=TransactionState.Ongoing,
            partitions=self.partitions | added,
            started_ms=now_ms if self.idle else self.started_ms,
            updated_ms=now_ms,
            previous_id=NO_ID,
            client_version=client_version,
        )

    def decided(self, commits: bool, client_version: int, next_id: int, now_ms: int) -> TransactionMetadata:
        """The producer ended its transaction."""
        bump = client_version >= TV_2
        return self._prepared(
            TransactionState.PrepareCommit if commits else TransactionState.PrepareAbort,
            self.producer_epoch + 1 if bump else self.producer_epoch,
            self.producer_epoch if bump else self.last_epoch,
            client_version,
            next_id,
            now_ms,
        )

    def fenced(self, now_ms: int, may_return: bool) -> TransactionMetadata:
        """Aborted against its producer's will, whose epoch is over with it.

        Where each end moves the epoch anyway, a producer that `may_return` learns from its next EndTxn that the
        transaction is aborted, and goes on; otherwise there is no way back. Least of all where another has come in its
        place: it would open one transaction after the other, and the newcomer never find the id at rest.
        """
        returns = may_return and self.client_version >= TV_2
        last_epoch = self.producer_epoch if returns else NO_EPOCH
        epoch = self.producer_epoch + 1
        return self._prepared(TransactionState.PrepareAbort, epoch, last_epoch, self.client_version, NO_ID, now_ms)

    def _prepared(
        self, state: TransactionState, epoch: int, last_epoch: int, client_version: int, next_id: int, now_ms: int
    ) -> TransactionMetadata:
        check_transition(self.transactional_id, self.state, state)
        return replace(
            self,
            state=state,
            producer_epoch=epoch,
            last_epoch=last_epoch,
            # An abort of nothing begins and ends at once.
            started_ms=now_ms if self.idle else self.started_ms,
            updated_ms=now_ms,
            previous_id=NO_ID,
            next_id=next_id,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> TransactionMetadata:
        """Every partition has its marker."""
        state = (
            TransactionState.CompleteCommit
            if self.state == TransactionState.PrepareCommit
            else TransactionState.CompleteAbort
        )
        check_transition(self.transactional_id, self.state, state)
        rotates = self.next_id != NO_ID
        return replace(
            self,
            state=state,
            partitions=frozenset(),
            updated_ms=now_ms,
            producer_id=self.next_id if rotates else self.producer_id,
            producer_epoch=0 if rotates else self.producer_epoch,
            previous_id=self.producer_id if rotates else NO_ID,
            next_id=NO_ID,
        )
