"""OffsetFetch: the offsets that groups committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from braidlog.client.consumer.offsets.offset_and_metadata import OffsetAndMetadata
from braidlog.core.protocol_errors import NONE
from braidlog.core.types import TopicPartition, by_topic
from braidlog.wire.generated.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)

OFFSET_FETCH: Final = 9
# Version 10 names topics by id.
NEWEST_OFFSET_FETCH: Final = 9
_SEVERAL_GROUPS: Final = 8
_MEMBERS: Final = 9
_STABLE: Final = 7


class GroupMemberEpoch(NamedTuple):
    """A member of the consumer protocol, which the coordinator checks (KIP-848)."""

    member_id: str
    epoch: int


class FetchedOffsets(NamedTuple):
    """What the coordinator says of a group, and of each partition that was asked for."""

    error_code: int
    # None where nothing is committed.
    offsets: dict[TopicPartition, OffsetAndMetadata | None]
    errors: dict[TopicPartition, int]


def offset_fetch_requests(
    version: int,
    groups: Mapping[str, Iterable[TopicPartition] | None],
    *,
    require_stable: bool,
    member: GroupMemberEpoch | None = None,
) -> list[OffsetFetchRequest]:
    """By group which partitions to fetch, or all (None). Brokers before 3.0 take one group in each request.

    `require_stable` leaves out offsets of transactions that are not decided yet, where the broker can tell.
    """
    stable = require_stable and version >= _STABLE
    if version < _SEVERAL_GROUPS:
        return [
            OffsetFetchRequest(group_id=group_id, topics=_single_topics(partitions), require_stable=stable)
            for group_id, partitions in groups.items()
        ]
    wanted = [OffsetFetchRequestGroup(group_id=group_id, topics=_topics(each)) for group_id, each in groups.items()]
    if member is not None and version >= _MEMBERS:
        for group in wanted:
            group.member_id, group.member_epoch = member
    return [OffsetFetchRequest(groups=wanted, require_stable=stable)]


def _single_topics(partitions: Iterable[TopicPartition] | None) -> list[OffsetFetchRequestTopic] | None:
    if partitions is None:
        return None
    return [OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in by_topic(partitions).items()]


def _topics(partitions: Iterable[TopicPartition] | None) -> list[OffsetFetchRequestTopics] | None:
    if partitions is None:
        return None
    return [OffsetFetchRequestTopics(name=name, partition_indexes=each) for name, each in by_topic(partitions).items()]


def fetched_by_group(response: OffsetFetchResponse) -> FetchedOffsets:
    """What the only group that was asked for committed."""
    if response.groups:
        group = response.groups[0]
        return _fetched(group.error_code, {topic.name: topic.partitions for topic in group.topics})
    return _fetched(response.error_code, {topic.name: topic.partitions for topic in response.topics})


def fetched_offsets(request: OffsetFetchRequest, response: OffsetFetchResponse) -> dict[str, FetchedOffsets]:
    """By group what it committed."""
    if not request.groups:
        return {request.group_id: fetched_by_group(response)}
    return {
        group.group_id: _fetched(group.error_code, {topic.name: topic.partitions for topic in group.topics})
        for group in response.groups
    }


def _fetched(
    error_code: int,
    topics: Mapping[str, list[OffsetFetchResponsePartition] | list[OffsetFetchResponsePartitions]],
) -> FetchedOffsets:
    found = FetchedOffsets(error_code, {}, {})
    for topic, partitions in topics.items():
        for each in partitions:
            partition = TopicPartition(topic, each.partition_index)
            if each.error_code != NONE:
                found.errors[partition] = each.error_code
            elif each.committed_offset < 0:
                found.offsets[partition] = None
            else:
                found.offsets[partition] = OffsetAndMetadata(
                    each.committed_offset, each.metadata or "", each.committed_leader_epoch
                )
    return found
