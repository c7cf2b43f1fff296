"""A classic group as the one record that the log keeps of it.

```
key    int16 version = 2    group
value  int16 version = 3    protocol type, generation, protocol, leader, since when in its state,
                            members: id, instance, client, host, timeouts, subscription, assignment
```

A group that is being rebalanced has no record of that: a crash takes it back to the generation before, whose members
then join again.
"""

from __future__ import annotations

from braidlog.coordinator.effects import Effects
from braidlog.coordinator.group.classic.group import EMPTY, KEY_VERSION, STABLE, ClassicGroup
from braidlog.coordinator.group.classic.member import ClassicGroupMember, MemberProtocol
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version, version_prefixed_bytes

VALUE_VERSION = 3
NEWEST_READ = 4


def store(group: ClassicGroup, effects: Effects) -> None:
    """Write down what the group is now; it is Stable or Empty."""
    value = snapshot(group)
    group.stored = value
    effects.write(*_record(group, value), applied=True)


def fits(group: ClassicGroup, max_batch_bytes: int) -> bool:
    """Whether the log would take what `store` writes: members bring along, and are assigned, whatever they like."""
    alone = Effects()
    alone.write(*_record(group, snapshot(group)))
    return alone.batch_bytes() <= max_batch_bytes


def _record(group: ClassicGroup, value: GroupMetadataValue) -> tuple[bytes, bytes]:
    return version_prefixed_bytes(GroupMetadataKey(group=group.group_id), KEY_VERSION), version_prefixed_bytes(
        value, VALUE_VERSION
    )


def snapshot(group: ClassicGroup) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation,
        protocol=group.protocol_name,
        leader=group.leader,
        current_state_timestamp=group.state_since_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_of(group.protocol_name),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def restore(group_id: str, value: bytes) -> ClassicGroup:
    version = read_version_prefix(value)
    if not 0 <= version <= NEWEST_READ:
        raise MalformedError(f"version {version} of the record of group {group_id!r} is not known")
    stored = GroupMetadataValue.decode(reader_after_version(value), version)
    group = ClassicGroup(group_id, stored.current_state_timestamp)
    group.stored = stored
    group.generation = stored.generation
    group.protocol_type = stored.protocol_type or None
    group.protocol_name = stored.protocol
    group.leader = stored.leader
    for stored_member in stored.members:
        rebalance_timeout_ms = (
            stored_member.rebalance_timeout if stored_member.rebalance_timeout >= 0 else stored_member.session_timeout
        )
        group.add(
            ClassicGroupMember(
                stored_member.member_id,
                stored_member.group_instance_id,
                stored_member.client_id,
                stored_member.client_host,
                rebalance_timeout_ms,
                stored_member.session_timeout,
                [MemberProtocol(stored.protocol or "", stored_member.subscription)],
                stored_member.assignment,
            )
        )
    group.state = STABLE if group.members else EMPTY
    group.learn_subscriptions()
    return group


def plain(value: GroupMetadataValue) -> object:
    """What can be compared and printed."""
    return (
        value.protocol_type,
        value.generation,
        value.protocol,
        value.leader,
        value.current_state_timestamp,
        tuple(
            (
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout,
                member.session_timeout,
                member.subscription,
                member.assignment,
            )
            for member in value.members
        ),
    )
