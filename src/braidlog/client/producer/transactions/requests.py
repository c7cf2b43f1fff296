"""The requests of a transaction, and what of their answers matters: the error code of each thing asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from braidlog.client.arguments import mapped
from braidlog.client.consumer.offsets.offset_and_metadata import ConsumerGroupMetadata, OffsetAndMetadata
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from braidlog.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from braidlog.wire.generated.end_txn import EndTxnRequest
from braidlog.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

ADD_PARTITIONS_TO_TXN: Final = 24
ADD_OFFSETS_TO_TXN: Final = 25
END_TXN: Final = 26
TXN_OFFSET_COMMIT: Final = 28

# Later versions are for brokers among themselves, or for what is not offered here (KIP-939).
NEWEST_ADD_PARTITIONS: Final = 3
NEWEST_INIT: Final = 5
# The first that can ask for the next epoch of an id (KIP-360).
RENEWING_INIT: Final = 3
# The last that does not itself add to the transaction, or move the epoch (KIP-890).
EXPLICIT_OFFSET_COMMIT: Final = 4
EXPLICIT_END: Final = 4
EXPLICIT_PRODUCE: Final = 11

TRANSACTION_VERSION: Final = "transaction.version"
IMPLICIT: Final = 2


class ProducerIdAndEpoch(NamedTuple):
    """A producer's id and epoch."""

    producer_id: int = -1
    epoch: int = -1


def add_partitions(
    transactional_id: str, identity: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    topics: dict[str, list[int]] = {}
    for topic, partition in partitions:
        topics.setdefault(topic, []).append(partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
    )


def added(response: AddPartitionsToTxnResponse) -> list[int]:
    return [
        each.partition_error_code
        for topic in response.results_by_topic_v3_and_below
        for each in topic.results_by_partition
    ]


def add_offsets(transactional_id: str, identity: ProducerIdAndEpoch, group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group,
    )


def offsets_of(
    given: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a program gave, checked; a bare number will do for an offset, a pair for a partition."""
    places: dict[TopicPartition, OffsetAndMetadata] = {}
    for key, value in mapped(given, "offsets", '{TopicPartition("orders", 0): 42}').items():
        place = OffsetAndMetadata(value) if isinstance(value, int) else value
        if not (
            isinstance(key, tuple) and len(key) == 2 and isinstance(place, OffsetAndMetadata) and place.offset >= 0
        ):
            raise UserError(
                f"{key!r}: {value!r} is no offset to commit; "
                "give {TopicPartition(topic, partition): OffsetAndMetadata(next offset)}"
            )
        places[TopicPartition(*key)] = place
    return places


def commit_offsets(
    transactional_id: str,
    identity: ProducerIdAndEpoch,
    group: ConsumerGroupMetadata,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> TxnOffsetCommitRequest:
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, partition), place in offsets.items():
        topics.setdefault(topic, []).append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=place.offset,
                committed_leader_epoch=place.leader_epoch,
                committed_metadata=place.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group.group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=group.generation_id,
        member_id=group.member_id,
        group_instance_id=group.group_instance_id,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )


def offsets_taken(response: TxnOffsetCommitResponse) -> list[int]:
    return [each.error_code for topic in response.topics for each in topic.partitions]


def end(transactional_id: str, identity: ProducerIdAndEpoch, commit: bool) -> EndTxnRequest:
    return EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
    )
