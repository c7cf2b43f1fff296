"""Partitions join a transaction (AddPartitionsToTxn, AddOffsetsToTxn), or are looked for in it (KIP-890)."""

from __future__ import annotations

from braidlog.coordinator.txn.transaction_metadata import LAST_EPOCH, TransactionMetadata, TransactionState
from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    ProducerFencedError,
)
from braidlog.core.types import TopicPartition


def validate_producer(transaction: TransactionMetadata | None, producer_id: int, epoch: int) -> TransactionMetadata:
    """The transaction, if that producer may do something with it now."""
    if transaction is None:
        raise InvalidProducerIdMappingError("this transactional id is not known")
    if transaction.producer_id != producer_id:
        if transaction.prepared and transaction.next_id == producer_id:
            raise ConcurrentTransactionsError("the last transaction is being completed; try again")
        raise InvalidProducerIdMappingError("this transactional id has another producer id")
    # The epoch above the last one only ever fences a producer: one that claims it could not be fenced by the next.
    if transaction.producer_epoch != epoch or epoch > LAST_EPOCH:
        raise ProducerFencedError("this producer's epoch is over")
    if transaction.prepared:
        raise ConcurrentTransactionsError("the last transaction is being completed; try again")
    return transaction


def add_partitions(
    transaction: TransactionMetadata | None,
    producer_id: int,
    epoch: int,
    partitions: frozenset[TopicPartition],
    client_version: int,
    now_ms: int,
) -> TransactionMetadata | None:
    """The transaction with the partitions in it; None where they are already."""
    found = validate_producer(transaction, producer_id, epoch)
    if found.state == TransactionState.Ongoing and partitions <= found.partitions:
        return None
    return found.with_partitions(partitions, client_version, now_ms)
