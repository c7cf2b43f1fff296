"""OffsetCommit: the offsets that a group goes on from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)

OFFSET_COMMIT: Final = 8
# Version 10 names topics by id.
NEWEST_OFFSET_COMMIT: Final = 9
_STATIC_MEMBERS: Final = 7


def offset_commit_request(
    version: int,
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> OffsetCommitRequest:
    """`generation` is the member epoch in the consumer protocol; without a member only an empty group takes it."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), committed in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id if version >= _STATIC_MEMBERS else None,
        topics=[OffsetCommitRequestTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


def offset_commit_codes(response: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """The error code of each partition, NONE where the offset was committed."""
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in response.topics
        for each in topic.partitions
    }
