"""Which member of its group a request comes from: a known one, a new one, or one that takes another's place."""

from __future__ import annotations

from typing import NamedTuple

from braidlog.coordinator.effects import Effects
from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.consumer.member import (
    JOINING,
    NEW_PROFILE,
    NEW_PROGRESS,
    NO_PARTITIONS,
    Assignment,
    ConsumerGroupMember,
    Progress,
)
from braidlog.coordinator.group.consumer.member_updates import write_member, write_member_tombstones
from braidlog.coordinator.group.consumer.validation import require_released, require_static, validate_epoch
from braidlog.core.protocol_errors import GroupMaxSizeReachedError


class MemberLookup(NamedTuple):
    member: ConsumerGroupMember
    # The id under which the member was known before, if it took over an instance.
    replaces: str | None = None


def require_not_full(group: ConsumerGroup, member_id: str, most: int) -> None:
    if len(group.members) >= most and member_id not in group.members:
        raise GroupMaxSizeReachedError(f"group {group.group_id!r} has its {most} members")


def get_or_create_member(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    owned: Assignment | None,
    effects: Effects,
) -> MemberLookup:
    """Of a ConsumerGroupHeartbeat."""
    if instance_id is None:
        member = group.members.get(member_id) if epoch == JOINING else group.member(member_id)
        if member is None:
            return MemberLookup(ConsumerGroupMember(member_id, NEW_PROFILE, NEW_PROGRESS))
        validate_epoch(member, epoch, owned)
        return MemberLookup(member)
    known = group.static_member(instance_id)
    if epoch != JOINING:
        known = require_static(known, member_id, instance_id)
        validate_epoch(known, epoch, owned)
        return MemberLookup(known)
    if known is None:
        member = group.members.get(member_id, ConsumerGroupMember(member_id, NEW_PROFILE, NEW_PROGRESS))
        validate_epoch(member, epoch, owned)
        return MemberLookup(member)
    require_released(known, member_id, instance_id)
    return replace_static_member(group, known, member_id, effects)


def get_or_create_classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, is_new: bool, effects: Effects
) -> MemberLookup:
    """Of a JoinGroup, whose members have no epoch when they come; `is_new` if it was given its id just now."""
    if instance_id is None:
        return MemberLookup(group.members.get(member_id, ConsumerGroupMember(member_id, NEW_PROFILE, NEW_PROGRESS)))
    known = group.static_member(instance_id)
    if not is_new:
        return MemberLookup(require_static(known, member_id, instance_id))
    if known is None:
        return MemberLookup(ConsumerGroupMember(member_id, NEW_PROFILE, NEW_PROGRESS))
    return replace_static_member(group, known, member_id, effects)


def replace_static_member(
    group: ConsumerGroup, former: ConsumerGroupMember, member_id: str, effects: Effects
) -> MemberLookup:
    """The instance goes on under another member id, with what it had."""
    before = former.progress
    progress = Progress(JOINING, JOINING, before.state, before.assigned, before.revoking)
    member = ConsumerGroupMember(member_id, former.profile, progress)
    if member_id != former.member_id:
        write_member_tombstones(group.group_id, former.member_id, effects)
        write_member(group.group_id, member, group.targets.get(former.member_id, NO_PARTITIONS), effects)
    return MemberLookup(member, former.member_id)
