"""InitProducerId: who gets which producer id and epoch, and whom that fences.

the id is unknown                         a new producer id, epoch 0
a producer starts without saying more     the next epoch, or a new producer id where epochs are used up
a producer says who it was (KIP-360)      the same if it still is; the answer it missed if it asks again; else fenced
a transaction is open                     it is aborted and its producer fenced; the caller is to try again
a transaction waits for its markers       the caller is to try again
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from braidlog.coordinator.txn.transaction_metadata import LAST_EPOCH, NO_EPOCH, TransactionMetadata, TransactionState
from braidlog.core.protocol_errors import ConcurrentTransactionsError, ProducerFencedError


class ProducerIdAndEpoch(NamedTuple):
    """The producer id and epoch that a producer says it has."""

    producer_id: int
    epoch: int


def init_producer_id(
    transaction: TransactionMetadata | None,
    transactional_id: str,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    take_id: Callable[[], int],
    now_ms: int,
) -> TransactionMetadata:
    """What to write down: Empty for the producer's id and epoch, PrepareAbort where an open transaction must end first.

    The very transaction it got where nothing is to be written and the present id and epoch are the answer.
    """
    if transaction is None:
        return TransactionMetadata(
            transactional_id, take_id(), 0, timeout_ms, TransactionState.Empty, frozenset(), now_ms
        )
    if expected is not None and not _is_or_was(transaction, expected):
        raise ProducerFencedError(f"{transactional_id} belongs to another producer now")
    if transaction.prepared:
        raise ConcurrentTransactionsError("the last transaction is being completed; try again")
    retried = expected is not None and _is_retry(transaction, expected)
    if expected is not None and not retried and expected != (transaction.producer_id, transaction.producer_epoch):
        raise ProducerFencedError(f"{transactional_id} has a newer epoch")
    if transaction.state == TransactionState.Ongoing:
        # A retry while a transaction is open is a late copy: the producer that opened it has had the response.
        return transaction if retried else transaction.fenced(now_ms, may_return=expected is not None)
    last_epoch = expected.epoch if expected is not None else NO_EPOCH
    if retried and transaction.producer_epoch <= LAST_EPOCH:
        epoch = transaction.producer_epoch
        return transaction.initialised(transaction.producer_id, epoch, last_epoch, timeout_ms, now_ms)
    if transaction.exhausted:
        return transaction.initialised(take_id(), 0, last_epoch, timeout_ms, now_ms)
    epoch = transaction.producer_epoch + 1
    return transaction.initialised(transaction.producer_id, epoch, last_epoch, timeout_ms, now_ms)


def _is_or_was(transaction: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    if expected.producer_id == transaction.producer_id:
        return True
    if transaction.prepared and expected.producer_id == transaction.next_id:
        return True
    return expected.producer_id == transaction.previous_id and expected.epoch >= LAST_EPOCH


def _is_retry(transaction: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether this is what the producer had before it got the present id and epoch."""
    return expected.epoch == transaction.last_epoch and expected != (
        transaction.producer_id,
        transaction.producer_epoch,
    )
