"""Members of a group as either protocol tells of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from braidlog.core.types import TopicPartition
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated import consumer_group_describe, describe_groups
from braidlog.wire.generated.consumer_protocol import ConsumerProtocolAssignment
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version

# Later versions add fields at the end, so that this one reads them too.
_NEWEST_ASSIGNMENT: Final = 3


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    # The name of a static member.
    instance_id: str | None
    client_id: str
    host: str
    # None where the members share out something else than partitions, or in a form that only they know.
    assignment: tuple[TopicPartition, ...] | None
    # What the coordinator wants it to have; only the newer protocol tells.
    target: tuple[TopicPartition, ...] | None = None
    epoch: int | None = None


def consumer_members(members: Iterable[consumer_group_describe.Member]) -> tuple[GroupMember, ...]:
    found = [
        GroupMember(
            each.member_id,
            each.instance_id,
            each.client_id,
            each.client_host,
            _partitions(each.assignment.topic_partitions),
            _partitions(each.target_assignment.topic_partitions),
            each.member_epoch,
        )
        for each in members
    ]
    return tuple(sorted(found, key=lambda member: member.member_id))


def classic_members(
    members: Iterable[describe_groups.DescribedGroupMember], shares_partitions: bool
) -> tuple[GroupMember, ...]:
    found = [
        GroupMember(
            each.member_id,
            each.group_instance_id,
            each.client_id,
            each.client_host,
            read_assignment(bytes(each.member_assignment)) if shares_partitions else None,
        )
        for each in members
    ]
    return tuple(sorted(found, key=lambda member: member.member_id))


def read_assignment(content: bytes) -> tuple[TopicPartition, ...] | None:
    """What the leader of a classic group gave to a member; nothing while the group rebalances."""
    if not content:
        return ()
    try:
        version = min(read_version_prefix(content), _NEWEST_ASSIGNMENT)
        assignment = ConsumerProtocolAssignment.decode(reader_after_version(content), version)
    except MalformedError:
        return None
    return tuple(
        sorted(
            TopicPartition(topic.topic, partition)
            for topic in assignment.assigned_partitions
            for partition in topic.partitions
        )
    )


def _partitions(topics: Sequence[consumer_group_describe.TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(
        sorted(TopicPartition(topic.topic_name, partition) for topic in topics for partition in topic.partitions)
    )
