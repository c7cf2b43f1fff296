"""ListOffsets: where a partition starts and ends, and the first record at or after a timestamp."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from braidlog.client.broker_errors import broker_error
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

LIST_OFFSETS: Final = 2
_CONSUMER: Final = -1


class OffsetSpec(IntEnum):
    """Offsets that have a name; any number from 0 up is a timestamp in milliseconds instead."""

    LATEST = -1
    EARLIEST = -2
    # Of the record with the largest timestamp.
    MAX_TIMESTAMP = -3
    # With tiered storage: the first offset on the broker's own disk, and the last in the other tier.
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5


# The first versions of ListOffsets that can be asked for each.
SUPPORTED_SINCE: Final = {OffsetSpec.MAX_TIMESTAMP: 7, OffsetSpec.EARLIEST_LOCAL: 8, OffsetSpec.LATEST_TIERED: 9}


class IsolationLevel(IntEnum):
    READ_UNCOMMITTED = 0
    # The latest offset is then the last stable one: before the first open transaction.
    READ_COMMITTED = 1


class OffsetQuery(NamedTuple):
    """What to look up in a partition; the leader epoch is checked by the broker unless it is -1."""

    timestamp: int
    leader_epoch: int = -1


class ListedOffset(NamedTuple):
    """An offset, -1 where no record has the timestamp or a later one; -1 also stands for what is not known."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def list_offsets_request(
    queries: Mapping[TopicPartition, OffsetQuery], isolation: IsolationLevel, timeout_ms: int = 0
) -> ListOffsetsRequest:
    """All `queries` go to one broker, the leader of their partitions."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for (topic, partition), query in queries.items():
        topics.setdefault(topic, []).append(
            ListOffsetsPartition(
                partition_index=partition, current_leader_epoch=query.leader_epoch, timestamp=query.timestamp
            )
        )
    return ListOffsetsRequest(
        replica_id=_CONSUMER,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        timeout_ms=timeout_ms,
    )


def listed_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, ListedOffset | ProtocolError]:
    found: dict[TopicPartition, ListedOffset | ProtocolError] = {}
    for topic in response.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            failed = each.error_code != NONE
            found[partition] = broker_error(each.error_code, str(partition)) if failed else _listed(each)
    return found


def _listed(answer: ListOffsetsPartitionResponse) -> ListedOffset:
    if answer.old_style_offsets:
        # Version 0 answers with a list.
        return ListedOffset(answer.old_style_offsets[0], -1, -1)
    return ListedOffset(answer.offset, answer.timestamp, answer.leader_epoch)
