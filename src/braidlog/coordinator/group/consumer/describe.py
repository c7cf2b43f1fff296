"""A group as ConsumerGroupDescribe shows it."""

from __future__ import annotations

from typing import Final

from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.consumer.member import NO_PARTITIONS, Assignment, ConsumerGroupMember, in_order
from braidlog.coordinator.group.consumer.target_assignment import preferred_assignor
from braidlog.coordinator.group.topics import Topics
from braidlog.wire.generated import consumer_group_describe as wire

CLASSIC_MEMBER: Final = 0
CONSUMER_MEMBER: Final = 1


def described(group: ConsumerGroup, topics: Topics, assignors: tuple[str, ...]) -> wire.DescribedGroup:
    return wire.DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name(),
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=preferred_assignor(group.votes, assignors),
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerGroupMember, topics: Topics) -> wire.Member:
    profile = member.profile
    return wire.Member(
        member_id=member.member_id,
        instance_id=profile.instance_id,
        rack_id=profile.rack_id,
        member_epoch=member.epoch,
        client_id=profile.client_id,
        client_host=profile.client_host,
        subscribed_topic_names=list(profile.topics),
        subscribed_topic_regex=profile.regex,
        assignment=_assignment(member.progress.assigned, topics),
        target_assignment=_assignment(group.targets.get(member.member_id, NO_PARTITIONS), topics),
        member_type=CLASSIC_MEMBER if member.is_classic else CONSUMER_MEMBER,
    )


def _assignment(assignment: Assignment, topics: Topics) -> wire.Assignment:
    """Topics that were deleted have no name any more and are left out."""
    entries = []
    for topic_id, numbers in in_order(assignment):
        name = topics.name_of(topic_id)
        if name is not None:
            entries.append(wire.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers))
    return wire.Assignment(topic_partitions=entries)
