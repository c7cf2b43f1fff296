"""Puts records of the consumer protocol back into the groups they came from."""

from __future__ import annotations

from collections.abc import Callable

from braidlog.coordinator.group.consumer import records
from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.consumer.subscriptions import TopicRegexResolver
from braidlog.coordinator.group.group import Group
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated import group_records as layouts
from braidlog.wire.reader import Reader
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version


def replay(
    groups: dict[str, Group],
    resolver: TopicRegexResolver,
    version: int,
    key: Reader,
    value: bytes | None,
    gone: Callable[[str, str], None],
) -> ConsumerGroup | None:
    """The group that the record belongs to; None where there is nothing it could change.

    `gone` is told the group and the id of each member that was removed.

    Compaction may have taken a group's older records away, so any of them may be the first, and a tombstone may speak
    of what is not there.
    """
    if version not in records.KEY_VERSIONS or version == records.REGEX:
        return None
    group_id = key.string(False)
    group = _group(groups, resolver, group_id, create=value is not None)
    if group is None:
        return None
    body = None if value is None else _body(group_id, version, value)
    if version == records.GROUP_EPOCH:
        if body is None:
            del groups[group_id]
        else:
            group.epoch = layouts.ConsumerGroupMetadataValue.decode(body, 0).epoch
    elif version == records.TOPICS:
        topics = layouts.ConsumerGroupPartitionMetadataValue()
        group.subscription_metadata = records.topics_from(topics if body is None else topics.decode(body, 0))
    elif version == records.TARGET_EPOCH:
        target = layouts.ConsumerGroupTargetAssignmentMetadataValue
        group.target_epoch = -1 if body is None else target.decode(body, 0).assignment_epoch
    else:
        _replay_member(group, version, key.string(False), body, gone)
    return group


def _replay_member(
    group: ConsumerGroup, version: int, member_id: str, body: Reader | None, gone: Callable[[str, str], None]
) -> None:
    if version == records.TARGET:
        target = layouts.ConsumerGroupTargetAssignmentMemberValue
        group.put_target(member_id, None if body is None else records.target_from(target.decode(body, 0)))
    elif version == records.CURRENT:
        current = layouts.ConsumerGroupCurrentMemberAssignmentValue
        group.put_progress(member_id, None if body is None else records.progress_from(current.decode(body, 0)))
    elif body is None:
        group.remove_member(member_id)
        gone(group.group_id, member_id)
    else:
        value = layouts.ConsumerGroupMemberMetadataValue.decode(body, 0)
        group.put_profile(member_id, records.profile_from(value))


def _group(groups: dict[str, Group], resolver: TopicRegexResolver, group_id: str, create: bool) -> ConsumerGroup | None:
    group = groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group
    if not create:
        return None
    if group is not None and not group.is_empty():
        raise MalformedError(f"group {group_id!r} has members of the classic protocol, and a record of the newer one")
    # An empty one stands there for offsets that were committed before, and is not in the log itself.
    made = ConsumerGroup(group_id, resolver)
    groups[group_id] = made
    return made


def _body(group_id: str, version: int, value: bytes) -> Reader:
    found = read_version_prefix(value)
    if found != records.VALUE_VERSION:
        raise MalformedError(f"record {version} of group {group_id!r} has a value of version {found}")
    return reader_after_version(value)
