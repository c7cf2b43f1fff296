"""Offsets as the protocol carries them: requests of every version, and what their answers say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from braidlog.client.consumer.assignors.embedded_protocol import by_topic
from braidlog.client.consumer.group.member import GroupIdentity
from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core.protocol_errors import NONE
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)

OFFSET_COMMIT: Final = 8
OFFSET_FETCH: Final = 9
# Version 10 names topics by id.
NEWEST: Final = 9
_BATCHED_FETCH: Final = 8
_MEMBER_FETCH: Final = 9
_STABLE_FETCH: Final = 7
_STATIC_COMMIT: Final = 7

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def commit_request(group_id: str, sender: GroupIdentity, offsets: Offsets, version: int) -> OffsetCommitRequest:
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), committed in offsets.items():
        topics.setdefault(topic, []).append(
            OffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=sender.generation,
        member_id=sender.member_id,
        group_instance_id=sender.instance_id if version >= _STATIC_COMMIT else None,
        topics=[OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in topics.items()],
    )


def commit_errors(answer: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """What went wrong, by partition."""
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
        if each.error_code != NONE
    }


def fetch_request(
    group_id: str, sender: GroupIdentity, partitions: Iterable[TopicPartition], version: int
) -> OffsetFetchRequest:
    """For stable offsets, where the broker can tell: none of a transaction that may yet be aborted."""
    stable = version >= _STABLE_FETCH
    if version < _BATCHED_FETCH:
        single = [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in by_topic(partitions).items()
        ]
        return OffsetFetchRequest(group_id=group_id, topics=single, require_stable=stable)
    topics = [
        OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in by_topic(partitions).items()
    ]
    group = OffsetFetchRequestGroup(group_id=group_id, topics=topics)
    if version >= _MEMBER_FETCH and sender.uses_consumer_protocol and sender.is_member:
        group.member_id = sender.member_id
        group.member_epoch = sender.generation
    return OffsetFetchRequest(groups=[group], require_stable=stable)


class FetchedOffsets:
    """What an answer says of the group, and of each partition."""

    def __init__(self, answer: OffsetFetchResponse) -> None:
        self.error_code = answer.error_code
        # None where nothing is committed.
        self.offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
        self.errors: dict[TopicPartition, int] = {}
        if answer.groups:
            self.error_code = answer.groups[0].error_code
            for topic in answer.groups[0].topics:
                for each in topic.partitions:
                    self._take(
                        TopicPartition(topic.name, each.partition_index),
                        each.error_code,
                        OffsetAndMetadata(each.committed_offset, each.metadata or "", each.committed_leader_epoch),
                    )
        for single in answer.topics:
            for one in single.partitions:
                self._take(
                    TopicPartition(single.name, one.partition_index),
                    one.error_code,
                    OffsetAndMetadata(one.committed_offset, one.metadata or "", one.committed_leader_epoch),
                )

    def _take(self, partition: TopicPartition, error_code: int, committed: OffsetAndMetadata) -> None:
        if error_code != NONE:
            self.errors[partition] = error_code
        else:
            self.offsets[partition] = committed if committed.offset >= 0 else None
