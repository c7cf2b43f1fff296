"""A transactional id as its last record has it: its states, what may come next, and the markers that it needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from braidlog.coordinator.effects import Moment, SendMarkers
from braidlog.core.types import TopicPartition

NO_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
# The last epoch that a producer may hold; the one above it is kept for fencing that producer.
LAST_EPOCH: Final = 32_766

# What the client that began or ended the transaction speaks: 2 means that each end moves the epoch (KIP-890).
TV_0: Final = 0
TV_2: Final = 2
# A timeout that never comes (KIP-939).
_NO_TIMEOUT_MS: Final = 0x7FFF_FFFF


@dataclass(frozen=True, slots=True)
class TxnSettings:
    """One instance serves every shard, and is replaced when a setting changes."""

    max_timeout_ms: int = 900_000
    id_expiration_ms: int = 604_800_000


class TransactionState(IntEnum):
    """The numbers are those in the log; the names are those that clients see."""

    # A producer has its id and epoch, and no transaction yet.
    Empty = 0
    # Partitions were added. Ends by EndTxn, by its timeout, or because a newer producer came.
    Ongoing = 1
    # Decided and written down, from here on nothing can change the outcome. Any other request is refused with
    # CONCURRENT_TRANSACTIONS until every partition has its marker.
    PrepareCommit = 2
    PrepareAbort = 3
    # Every partition has its marker.
    CompleteCommit = 4
    CompleteAbort = 5
    # Being forgotten. Never written: a tombstone says it.
    Dead = 6
    # On the way from Ongoing to PrepareAbort with a newer epoch. Never written: here both are one step.
    PrepareEpochFence = 7


_E, _O = TransactionState.Empty, TransactionState.Ongoing
_PC, _PA = TransactionState.PrepareCommit, TransactionState.PrepareAbort
_CC, _CA = TransactionState.CompleteCommit, TransactionState.CompleteAbort
_D, _F = TransactionState.Dead, TransactionState.PrepareEpochFence

# An abort without any partition, straight from Empty or a Complete state, is what KIP-890 allows.
TRANSITIONS: Final[dict[TransactionState, tuple[TransactionState, ...]]] = {
    _E: (_E, _O, _PA, _D),
    _O: (_O, _PC, _PA, _F),
    _PC: (_CC,),
    _PA: (_CA,),
    _CC: (_E, _O, _PA, _D),
    _CA: (_E, _O, _PA, _D),
    _F: (_PA,),
    _D: (),
}

# Decided, and waiting for markers.
PREPARED: Final = (_PC, _PA)
# Without a transaction: a new one may begin, and an id that stays so is forgotten in the end.
IDLE: Final = (_E, _CC, _CA)

BY_NAME: Final[dict[str, TransactionState]] = {state.name: state for state in TransactionState}


class IllegalTransactionTransitionError(AssertionError):
    """A bug of ours: the rules let something through that the table forbids."""


def check_transition(transactional_id: str, before: TransactionState, after: TransactionState) -> None:
    if after not in TRANSITIONS[before]:
        raise IllegalTransactionTransitionError(f"{transactional_id}: {after.name} cannot follow {before.name}")


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

    # Values that follow from this one

    def markers(self, partitions: list[TopicPartition], coordinator_epoch: int, attempt: int = 0) -> SendMarkers:
        return SendMarkers(
            self.transactional_id,
            self.producer_id,
            self.producer_epoch,
            self.commits,
            partitions,
            coordinator_epoch,
            attempt,
        )

    def times_out_at(self, now: Moment) -> float | None:
        """When the transaction is aborted (monotonic seconds); None where none is open, or it may stay open."""
        if self.state != TransactionState.Ongoing or self.timeout_ms >= _NO_TIMEOUT_MS:
            return None
        left_ms = min(self.started_ms - now.wall_ms, 0) + self.timeout_ms
        return now.monotonic + max(0, left_ms) / 1000

    def expires_at(self, expiration_ms: int, now: Moment) -> float | None:
        """When the id is forgotten; None while it has a transaction."""
        if not self.idle:
            return None
        return now.monotonic + max(0, self.updated_ms + expiration_ms - now.wall_ms) / 1000

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
            # The same reply once more, and perhaps a third time.
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

    def decided(
        self, commits: bool, client_version: int, next_id: int, now_ms: int, *, fenced: bool = False
    ) -> TransactionMetadata:
        """The transaction ends: by its producer, or without it, whose epoch is over then."""
        state = TransactionState.PrepareCommit if commits else TransactionState.PrepareAbort
        check_transition(self.transactional_id, self.state, state)
        bumps_epoch = fenced or client_version >= TV_2
        return replace(
            self,
            state=state,
            producer_epoch=self.producer_epoch + 1 if bumps_epoch else self.producer_epoch,
            last_epoch=self.producer_epoch if bumps_epoch else self.last_epoch,
            # An abort of nothing begins and ends at once.
            started_ms=now_ms if self.idle else self.started_ms,
            updated_ms=now_ms,
            previous_id=NO_ID,
            next_id=next_id,
            client_version=client_version,
        )

    def fenced(self, now_ms: int, may_return: bool) -> TransactionMetadata:
        """Aborted without its producer's request.

        Where each end moves the epoch anyway, a producer that `may_return` learns from its next EndTxn that the
        transaction is aborted, and goes on; otherwise there is no way back. Least of all where another has come in its
        place: it would open one transaction after the other, and the new one never find the id idle.
        """
        ended = self.decided(False, self.client_version, NO_ID, now_ms, fenced=True)
        returns = may_return and self.client_version >= TV_2
        return ended if returns else replace(ended, last_epoch=NO_EPOCH)

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
