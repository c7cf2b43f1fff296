"""EndTxn: what becomes of a transaction, and how a repeated request is answered.

Where the epoch stays the same, the state alone shows a repetition, so it is only recognised until the next
transaction begins. Where each end moves the epoch (version 5 of the request, KIP-890), the epoch shows it:

                    abort, old epoch   abort, new epoch     commit, old epoch   commit, new epoch
    Empty           fenced             ends at once         fenced              INVALID_TXN_STATE
    CompleteAbort   repeated           ends at once         INVALID_TXN_STATE   INVALID_TXN_STATE
    CompleteCommit  INVALID_TXN_STATE  ends at once         repeated            INVALID_TXN_STATE
"""

from __future__ import annotations

from collections.abc import Callable

from braidlog.coordinator.txn.transaction_metadata import (
    LAST_EPOCH,
    NO_ID,
    TV_0,
    TV_2,
    TransactionMetadata,
    TransactionState,
)
from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)


def end_keeping_epoch(
    transaction: TransactionMetadata, producer_id: int, epoch: int, commits: bool, now_ms: int
) -> TransactionMetadata | None:
    """What to write down; None where the transaction has ended this way before."""
    if transaction.producer_id != producer_id:
        raise InvalidProducerIdMappingError("this transactional id has another producer id")
    if transaction.producer_epoch != epoch:
        raise ProducerFencedError("this producer's epoch is over")
    if transaction.state == TransactionState.Ongoing:
        return transaction.decided(commits, TV_0, NO_ID, now_ms)
    _check_repeated(transaction, commits)
    return None


def end_bumping_epoch(
    transaction: TransactionMetadata,
    producer_id: int,
    epoch: int,
    commits: bool,
    take_id: Callable[[], int],
    now_ms: int,
) -> TransactionMetadata | None:
    """What to write down; None where the transaction has ended this way before."""
    used_up = epoch == LAST_EPOCH and transaction.producer_epoch == 0 and transaction.previous_id == producer_id
    if transaction.producer_id != producer_id and not used_up:
        if transaction.prepared and transaction.next_id == producer_id:
            raise ConcurrentTransactionsError("the last transaction is being completed; try again")
        raise InvalidProducerIdMappingError("this transactional id has another producer id")
    ended = transaction.state not in (TransactionState.Ongoing, TransactionState.Empty)
    # The epoch before is only that of the same producer where no other has begun since.
    if ended and (used_up or epoch == transaction.last_epoch == transaction.producer_epoch - 1):
        if transaction.producer_epoch > LAST_EPOCH and not transaction.prepared:
            raise ProducerFencedError("this producer's epochs are used up; it has to begin anew")
        _check_repeated(transaction, commits)
        return None
    if epoch != transaction.producer_epoch or epoch > LAST_EPOCH:
        raise ProducerFencedError("this producer's epoch is over")
    if transaction.prepared:
        raise ConcurrentTransactionsError("the last transaction is being completed; try again")
    if commits and transaction.state != TransactionState.Ongoing:
        raise InvalidTxnStateError("there is nothing to commit")
    next_id = take_id() if transaction.exhausted else NO_ID
    return transaction.decided(commits, TV_2, next_id, now_ms)


def _check_repeated(transaction: TransactionMetadata, commits: bool) -> None:
    """A request that came before: fine if the transaction has ended that way.

    Until it has, every end is told to try again, also the other one: that may be of the next transaction, whose
    partitions wait for this one.
    """
    if transaction.prepared:
        raise ConcurrentTransactionsError("this transaction is being completed; try again")
    if transaction.state == TransactionState.Empty or transaction.commits != commits:
        raise InvalidTxnStateError(f"the transaction is in state {transaction.state.name}")
