"""What one request of a member makes of its group, whichever protocol the member speaks.

    profile changed, or the cluster's topics did  →  the group's epoch rises
    the epoch is past the target's                →  a new target
    the member is not at its target               →  its next step towards it

Everything is worked out from the state as it is and written down; the caller's answer comes from what is returned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from braidlog.coordinator.effects import Effects
from braidlog.coordinator.group.consumer import records
from braidlog.coordinator.group.consumer.assignors import ASSIGNORS, MemberSubscription, preferred_assignor
from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.consumer.member import NO_PARTITIONS, Assignment, ConsumerGroupMember, Profile
from braidlog.coordinator.group.consumer.reconciliation import reconcile
from braidlog.coordinator.group.consumer.subscriptions import (
    TopicMetadata,
    TopicRegexResolver,
    compute_subscription_metadata,
)
from braidlog.coordinator.group.topics import Topics


class MemberUpdate(NamedTuple):
    """A member's request, as far as it concerns the group."""

    group: ConsumerGroup
    # Before the request; with an empty profile if it is new.
    member: ConsumerGroupMember
    # What it is now.
    profile: Profile
    # The partitions it says it owns; None if it did not say.
    owned: Assignment | None
    assignors: tuple[str, ...]
    # The former member whose instance it takes over.
    replaces: str | None = None

    def subscription_changed(self) -> bool:
        before, after = self.member.profile, self.profile
        return before.topics != after.topics or before.regex != after.regex


class MemberUpdates:
    def __init__(self, topics: Topics, resolver: TopicRegexResolver) -> None:
        self._topics = topics
        self._resolver = resolver

    def advance(self, change: MemberUpdate, effects: Effects) -> ConsumerGroupMember:
        """The member after its request."""
        group, member, profile = change.group, change.member, change.profile
        member_id = member.member_id
        if profile != member.profile:
            effects.write(records.member_key(group.group_id, member_id), records.member_value(profile))
        epoch, topics = self._group_epoch(change, effects)
        if epoch > group.target_epoch:
            target = self._new_target(change, epoch, topics, effects)
            target_epoch = epoch
        else:
            target = group.targets.get(change.replaces or member_id, NO_PARTITIONS)
            target_epoch = group.target_epoch
        progress = reconcile(member.progress, target, target_epoch, change.owned, group.is_taken)
        if progress != member.progress:
            effects.write(records.current_key(group.group_id, member_id), records.current_value(progress))
        return ConsumerGroupMember(member_id, profile, progress)

    def _group_epoch(self, change: MemberUpdate, effects: Effects) -> tuple[int, Mapping[str, TopicMetadata]]:
        group = change.group
        bump = group.epoch == 0 or change.subscription_changed()
        if not bump and not group.topics_stale:
            return group.epoch, group.subscription_metadata
        found = compute_subscription_metadata(group.names_with(change.member.profile, change.profile), self._topics)
        if found != group.subscription_metadata:
            effects.write(records.topics_key(group.group_id), records.topics_value(found))
            bump = True
        else:
            # Not before it is written down: if that fails, the next heartbeat has to look again.
            group.topics_stale = False
        if not bump:
            return group.epoch, found
        epoch = group.epoch + 1
        effects.write(records.group_epoch_key(group.group_id), records.epoch_value(epoch))
        return epoch, found

    def _new_target(
        self, change: MemberUpdate, epoch: int, topics: Mapping[str, TopicMetadata], effects: Effects
    ) -> Assignment:
        group, member_id, former = change.group, change.member.member_id, change.replaces
        profiles = {key: member.profile for key, member in group.members.items() if key != former}
        profiles[member_id] = change.profile
        before: Mapping[str, Assignment] = group.targets
        if former is not None:
            mine = group.targets.get(former, NO_PARTITIONS)
            before = {**{key: target for key, target in group.targets.items() if key != former}, member_id: mine}
        assignor = preferred_assignor(group.votes_with(change.member.profile, change.profile), change.assignors)
        target = build_target_assignment(profiles, before, topics, self._resolver, assignor)
        write_target(effects, group.group_id, epoch, before, target)
        return target[member_id]

    def remove(self, group: ConsumerGroup, members: list[ConsumerGroupMember], effects: Effects) -> None:
        """The members are gone; the others get a new target with the next heartbeat."""
        if not members:
            return
        for member in members:
            records.write_member_tombstones(group.group_id, member.member_id, effects)
        found = compute_subscription_metadata(group.names_without([member.profile for member in members]), self._topics)
        if found != group.subscription_metadata:
            effects.write(records.topics_key(group.group_id), records.topics_value(found))
        effects.write(records.group_epoch_key(group.group_id), records.epoch_value(group.epoch + 1))


def build_target_assignment(
    profiles: Mapping[str, Profile],
    before: Mapping[str, Assignment],
    subscription_metadata: Mapping[str, TopicMetadata],
    resolver: TopicRegexResolver,
    assignor: str,
) -> dict[str, Assignment]:
    ids: dict[tuple[str, ...], tuple[bytes, ...]] = {}
    readers: list[MemberSubscription] = []
    for member_id, profile in profiles.items():
        names = resolver.topics_of(profile)
        topics = ids.get(names)
        if topics is None:
            topics = ids[names] = tuple(
                subscription_metadata[name].topic_id for name in names if name in subscription_metadata
            )
        readers.append(MemberSubscription(member_id, profile.instance_id, topics, before.get(member_id, NO_PARTITIONS)))
    partitions = {topic.topic_id: topic.partitions for topic in subscription_metadata.values()}
    return ASSIGNORS[assignor](readers, partitions)


def write_target(
    effects: Effects,
    group_id: str,
    epoch: int,
    before: Mapping[str, Assignment],
    target: Mapping[str, Assignment],
) -> None:
    for member_id, assignment in target.items():
        if before.get(member_id) != assignment:
            effects.write(records.target_key(group_id, member_id), records.target_value(assignment))
    effects.write(records.target_epoch_key(group_id), records.target_epoch_value(epoch))
