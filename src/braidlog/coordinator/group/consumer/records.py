"""The records of groups that the broker assigns, as keys and values of `__consumer_offsets`.

A key's version says what the record is (all values are in version 0, see `wire/generated/group_records`):

    3  ConsumerGroupMetadata            group            the group's epoch
    4  ConsumerGroupPartitionMetadata   group            the topics it reads, as they were when last looked at
    5  ConsumerGroupMemberMetadata      group, member    `Profile`
    6  …TargetAssignmentMetadata        group            the epoch of the target
    7  …TargetAssignmentMember          group, member    the partitions meant for a member
    8  …CurrentMemberAssignment         group, member    `Progress`
   16  …RegularExpression (4.x)         group, pattern   ignored: patterns are resolved anew after each change of topics
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from braidlog.coordinator.effects import Effects
from braidlog.coordinator.group.classic.member import MemberProtocol
from braidlog.coordinator.group.consumer.member import (
    STATES,
    UNKNOWN,
    Assignment,
    ClassicMemberMetadata,
    ConsumerGroupMember,
    Profile,
    Progress,
    in_order,
    partitions_of,
)
from braidlog.coordinator.group.consumer.subscriptions import TopicMetadata
from braidlog.wire.generated import group_records as layouts
from braidlog.wire.version_prefix import version_prefixed_bytes

GROUP_EPOCH: Final = 3
TOPICS: Final = 4
MEMBER: Final = 5
TARGET_EPOCH: Final = 6
TARGET: Final = 7
CURRENT: Final = 8
REGEX: Final = 16

KEY_VERSIONS: Final = frozenset({GROUP_EPOCH, TOPICS, MEMBER, TARGET_EPOCH, TARGET, CURRENT, REGEX})
VALUE_VERSION: Final = 0


def group_epoch_key(group_id: str) -> bytes:
    return version_prefixed_bytes(layouts.ConsumerGroupMetadataKey(group_id=group_id), GROUP_EPOCH)


def topics_key(group_id: str) -> bytes:
    return version_prefixed_bytes(layouts.ConsumerGroupPartitionMetadataKey(group_id=group_id), TOPICS)


def member_key(group_id: str, member_id: str) -> bytes:
    return version_prefixed_bytes(
        layouts.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), MEMBER
    )


def target_epoch_key(group_id: str) -> bytes:
    return version_prefixed_bytes(layouts.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), TARGET_EPOCH)


def target_key(group_id: str, member_id: str) -> bytes:
    return version_prefixed_bytes(
        layouts.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), TARGET
    )


def current_key(group_id: str, member_id: str) -> bytes:
    return version_prefixed_bytes(
        layouts.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), CURRENT
    )


def epoch_value(epoch: int) -> bytes:
    return version_prefixed_bytes(layouts.ConsumerGroupMetadataValue(epoch=epoch), VALUE_VERSION)


def target_epoch_value(epoch: int) -> bytes:
    return version_prefixed_bytes(
        layouts.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch), VALUE_VERSION
    )


def topics_value(topics: Mapping[str, TopicMetadata]) -> bytes:
    entries = []
    for name in sorted(topics):
        topic = topics[name]
        racks = [
            layouts.PartitionMetadata(partition=number, racks=sorted(racks))
            for number, racks in enumerate(topic.racks)
            if racks
        ]
        entries.append(
            layouts.TopicMetadata(
                topic_id=topic.topic_id,
                topic_name=name,
                num_partitions=topic.partitions,
                partition_metadata=racks,
            )
        )
    return version_prefixed_bytes(layouts.ConsumerGroupPartitionMetadataValue(topics=entries), VALUE_VERSION)


def topics_from(value: layouts.ConsumerGroupPartitionMetadataValue) -> dict[str, TopicMetadata]:
    found: dict[str, TopicMetadata] = {}
    for topic in value.topics:
        known = {entry.partition: frozenset(entry.racks) for entry in topic.partition_metadata}
        racks = tuple(known.get(number, frozenset()) for number in range(topic.num_partitions)) if known else ()
        found[topic.topic_name] = TopicMetadata(topic.topic_id, topic.num_partitions, racks)
    return found


def member_value(profile: Profile) -> bytes:
    classic = None
    if profile.classic is not None:
        protocols = [layouts.ClassicProtocol(name=p.name, metadata=p.metadata) for p in profile.classic.protocols]
        classic = layouts.ClassicMemberMetadata(
            session_timeout_ms=profile.classic.session_timeout_ms, supported_protocols=protocols
        )
    value = layouts.ConsumerGroupMemberMetadataValue(
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=list(profile.topics),
        subscribed_topic_regex=profile.regex,
        rebalance_timeout_ms=profile.rebalance_timeout_ms,
        server_assignor=profile.assignor,
        classic_member_metadata=classic,
    )
    return version_prefixed_bytes(value, VALUE_VERSION)


def profile_from(value: layouts.ConsumerGroupMemberMetadataValue) -> Profile:
    kept = value.classic_member_metadata
    classic = None
    if kept is not None:
        protocols = tuple(MemberProtocol(entry.name, bytes(entry.metadata)) for entry in kept.supported_protocols)
        classic = ClassicMemberMetadata(kept.session_timeout_ms, protocols)
    return Profile(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topics=tuple(sorted(set(value.subscribed_topic_names))),
        regex=value.subscribed_topic_regex or "",
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        assignor=value.server_assignor,
        classic=classic,
    )


def target_value(target: Assignment) -> bytes:
    entries = [layouts.TopicPartition(topic_id=topic, partitions=numbers) for topic, numbers in in_order(target)]
    return version_prefixed_bytes(
        layouts.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=entries), VALUE_VERSION
    )


def target_from(value: layouts.ConsumerGroupTargetAssignmentMemberValue) -> Assignment:
    return partitions_of((entry.topic_id, entry.partitions) for entry in value.topic_partitions)


def current_value(progress: Progress) -> bytes:
    value = layouts.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=progress.epoch,
        previous_member_epoch=progress.previous_epoch,
        state=progress.state,
        assigned_partitions=_entries(progress.assigned),
        partitions_pending_revocation=_entries(progress.revoking),
    )
    return version_prefixed_bytes(value, VALUE_VERSION)


def progress_from(value: layouts.ConsumerGroupCurrentMemberAssignmentValue) -> Progress:
    return Progress(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=value.state if value.state in STATES else UNKNOWN,
        assigned=partitions_of((entry.topic_id, entry.partitions) for entry in value.assigned_partitions),
        revoking=partitions_of((entry.topic_id, entry.partitions) for entry in value.partitions_pending_revocation),
    )


def _entries(assignment: Assignment) -> list[layouts.TopicPartitions]:
    return [layouts.TopicPartitions(topic_id=topic, partitions=numbers) for topic, numbers in in_order(assignment)]


def write_member_tombstones(group_id: str, member_id: str, effects: Effects) -> None:
    effects.write(current_key(group_id, member_id), None)
    effects.write(target_key(group_id, member_id), None)
    effects.write(member_key(group_id, member_id), None)


def write_member(group_id: str, member: ConsumerGroupMember, target: Assignment, effects: Effects) -> None:
    """A member as a whole: one that takes another's place, or comes from a group of the classic protocol."""
    effects.write(member_key(group_id, member.member_id), member_value(member.profile))
    effects.write(target_key(group_id, member.member_id), target_value(target))
    effects.write(current_key(group_id, member.member_id), current_value(member.progress))
