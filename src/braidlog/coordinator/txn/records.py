"""Transactions as records of `__transaction_state`, in the layouts that Kafka's own tools read.

    key     version int16 = 0, transactional id
    value   version int16, 1 and flexible, or 0 and without tags; absent where the id is forgotten:
                producer id, epoch, timeout, state, partitions by topic (null in Empty), last update, start
                tag 0      producer id before this one       tag 1   producer id after this transaction
                tag 2      transaction version of the client
                tag 10000  epoch before this one: braidlog's own, by which a lost answer survives a restart

Version 0 is what Kafka 3.9 writes on ZooKeeper, and all that Kafka before 3.8 reads: it is written beside such brokers.
"""

from __future__ import annotations

from typing import Final

from braidlog.coordinator.shard import ReplayedRecord, UnknownRecordTypeError
from braidlog.coordinator.txn.transaction_metadata import TransactionMetadata, TransactionState
from braidlog.core.types import TopicPartition
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.transaction_records import PartitionsSchema, TransactionLogKey, TransactionLogValue
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version, version_prefixed_bytes

KEY_VERSION: Final = 0
VALUE_VERSION: Final = 1
# What every Kafka reads. The tags are not in it; they matter to newer clients, which are not served as such beside it.
OLDEST_VALUE_VERSION: Final = 0


def encode_key(transactional_id: str) -> bytes:
    return version_prefixed_bytes(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def by_topic(partitions: frozenset[TopicPartition]) -> dict[str, list[int]]:
    """In an order that does not depend on how they came together."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def encode_value(transaction: TransactionMetadata, version: int = VALUE_VERSION) -> bytes:
    topics = by_topic(transaction.partitions)
    partitions = [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.state,
        transaction_partitions=None if transaction.state == TransactionState.Empty else partitions,
        transaction_last_update_timestamp_ms=transaction.updated_ms,
        transaction_start_timestamp_ms=transaction.started_ms,
    )
    if version > OLDEST_VALUE_VERSION:
        value.previous_producer_id = transaction.previous_id
        value.next_producer_id = transaction.next_id
        value.client_transaction_version = transaction.client_version
        value.last_producer_epoch = transaction.last_epoch
    return version_prefixed_bytes(value, version)


def decode(record: ReplayedRecord) -> tuple[str, TransactionMetadata | None]:
    """The id and what became of it; None where it is forgotten."""
    if read_version_prefix(record.key) != KEY_VERSION:
        raise UnknownRecordTypeError(read_version_prefix(record.key))
    reader = reader_after_version(record.key)
    transactional_id = TransactionLogKey.decode(reader, KEY_VERSION).transactional_id
    if record.value is None:
        return transactional_id, None
    version = read_version_prefix(record.value)
    if not 0 <= version <= VALUE_VERSION:
        raise MalformedError(f"transactional id {transactional_id!r}: value version {version} is not known")
    value = TransactionLogValue.decode(reader_after_version(record.value), version)
    try:
        state = TransactionState(value.transaction_status)
    except ValueError:
        raise MalformedError(
            f"transactional id {transactional_id!r}: state {value.transaction_status} is not known"
        ) from None
    partitions = frozenset(
        TopicPartition(topic.topic, index)
        for topic in value.transaction_partitions or []
        for index in topic.partition_ids
    )
    return transactional_id, TransactionMetadata(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        state,
        partitions,
        value.transaction_last_update_timestamp_ms,
        value.transaction_start_timestamp_ms,
        value.last_producer_epoch,
        # Kafka 4 repeats the present id here where it did not change.
        value.previous_producer_id if value.previous_producer_id != value.producer_id else -1,
        value.next_producer_id,
        value.client_transaction_version,
    )
