"""A live group goes over to the consumer protocol when its first member does, and back when its last one leaves.

It goes back, too, when the cluster gives up the protocol: members that speak it are out then.

Both ways the members stay with what they have: the group is written anew in the other form, in one batch with the
deletion of the old one. The classic side is changed in place, so those records count as applied.
"""

from __future__ import annotations

from collections.abc import Callable

from braidlog.coordinator.effects import Effects, Moment
from braidlog.coordinator.group.classic.consumer_protocol import parse_subscription
from braidlog.coordinator.group.classic.group import CONSUMER, KEY_VERSION, ClassicGroup
from braidlog.coordinator.group.classic.group import STABLE as CLASSIC_STABLE
from braidlog.coordinator.group.classic.member import ClassicGroupMember, MemberProtocol
from braidlog.coordinator.group.classic.protocol import ClassicGroupProtocol
from braidlog.coordinator.group.classic.records import fits
from braidlog.coordinator.group.consumer import records
from braidlog.coordinator.group.consumer.classic_assignment import assignment_bytes, parse_assignment
from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.consumer.member import (
    STABLE,
    Assignment,
    ClassicMemberMetadata,
    ConsumerGroupMember,
    Profile,
    Progress,
)
from braidlog.coordinator.group.consumer.member_timeouts import MemberTimeouts
from braidlog.coordinator.group.consumer.subscriptions import TopicRegexResolver
from braidlog.coordinator.group.group import Group
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.topics import Topics
from braidlog.core.protocol_errors import GroupIdNotFoundError, RebalanceInProgressError
from braidlog.wire.generated.group_records import GroupMetadataKey
from braidlog.wire.version_prefix import version_prefixed_bytes


class Migration:
    def __init__(
        self,
        groups: dict[str, Group],
        settings: Callable[[], GroupSettings],
        topics: Topics,
        resolver: TopicRegexResolver,
        timeouts: MemberTimeouts,
        classic: ClassicGroupProtocol,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._topics = topics
        self._resolver = resolver
        self._timeouts = timeouts
        self._classic = classic

    # To the consumer protocol

    def convert_to_consumer_group(self, classic: ClassicGroup, effects: Effects) -> ConsumerGroup:
        """What the group would be in the consumer protocol; nothing changes before `finish_upgrade`."""
        group = ConsumerGroup(classic.group_id, self._resolver)
        effects.write(version_prefixed_bytes(GroupMetadataKey(group=group.group_id), KEY_VERSION), None, applied=True)
        if classic.is_empty():
            return group
        self._validate_online_upgrade(classic)
        group.epoch = group.target_epoch = classic.generation
        given: dict[bytes, frozenset[int]] = {}
        for old in classic.members.values():
            profile, assigned = self._profile(classic, old), self._assigned(classic, old)
            # An assignor of the client's may have given a partition to several: the first one has it.
            mine = {topic: numbers - given.get(topic, frozenset()) for topic, numbers in assigned.items()}
            mine = {topic: numbers for topic, numbers in mine.items() if numbers}
            for topic, numbers in mine.items():
                given[topic] = given.get(topic, frozenset()) | numbers
            progress = Progress(classic.generation, classic.generation, STABLE, mine)
            group.put_profile(old.member_id, profile)
            group.put_progress(old.member_id, progress)
            group.put_target(old.member_id, mine)
            records.write_member(group.group_id, ConsumerGroupMember(old.member_id, profile, progress), mine, effects)
        effects.write(records.group_epoch_key(group.group_id), records.epoch_value(group.epoch))
        effects.write(records.target_epoch_key(group.group_id), records.target_epoch_value(group.target_epoch))
        return group

    def finish_upgrade(self, classic: ClassicGroup, group: ConsumerGroup, now: Moment, effects: Effects) -> None:
        """The operation succeeded: the classic group ends here, its members have their sessions in the new one."""
        again = RebalanceInProgressError(f"group {group.group_id!r} goes over to the consumer protocol; join again")
        self._classic.dissolve(classic, again, now, effects)
        del self._groups[group.group_id]
        timeout_ms = self._settings().session_timeout_of(group.group_id)
        for member in group.members.values():
            self._timeouts.touch(group.group_id, member, timeout_ms, now)

    def _validate_online_upgrade(self, classic: ClassicGroup) -> None:
        settings = self._settings()
        if not settings.upgrade_allowed:
            why = "and group.consumer.migration.policy does not let it go over to the newer one"
        elif classic.protocol_type != CONSUMER:
            why = f"of the type {classic.protocol_type!r}, which has no newer one"
        elif len(classic.members) > settings.consumer_max_size:
            why = f"with more than the {settings.consumer_max_size} members that the newer one may have"
        else:
            return
        raise GroupIdNotFoundError(f"group {classic.group_id!r} has members of the classic protocol, {why}")

    def _profile(self, classic: ClassicGroup, member: ClassicGroupMember) -> Profile:
        metadata = member.metadata_of(classic.protocol_name) or next((p.metadata for p in member.protocols), b"")
        subscription = parse_subscription(metadata)
        if subscription is None:
            message = f"member {member.member_id!r} of group {classic.group_id!r} does not say what it reads"
            raise GroupIdNotFoundError(message)
        protocols = tuple(MemberProtocol(name, bytes(content)) for name, content in member.protocols)
        return Profile(
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=tuple(sorted(set(subscription.topics))),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicMemberMetadata(member.session_timeout_ms, protocols),
        )

    def _assigned(self, classic: ClassicGroup, member: ClassicGroupMember) -> Assignment:
        assigned = parse_assignment(member.assignment, self._topics)
        if assigned is None:
            message = f"the assignment of member {member.member_id!r} of group {classic.group_id!r} cannot be read"
            raise GroupIdNotFoundError(message)
        return assigned

    # And back

    def is_online_downgrade(self, group: ConsumerGroup, member: ConsumerGroupMember) -> bool:
        """Whether only members of the classic protocol are left when this one leaves."""
        settings = self._settings()
        others = len(group.members) - 1
        return (
            settings.downgrade_allowed
            and not member.is_classic
            and 0 < others == group.classic_members
            and others <= settings.max_size
        )

    def convert_to_classic_group(
        self, group: ConsumerGroup, leaving: ConsumerGroupMember, now: Moment, effects: Effects
    ) -> bool:
        """The group is a classic one from here on, and rebalances; false if that is too much for one batch."""
        classic = self._as_classic(group, leaving, now)
        tombstones = Effects()
        group.write_tombstones(tombstones, applied=True)
        if not fits(classic, self._settings().max_batch_bytes - tombstones.batch_bytes()):
            return False
        for member_id in group.members:
            self._timeouts.end(group.group_id, member_id)
        effects.add(tombstones)
        self._classic.take_over(classic, now, effects)
        return True

    def end_consumer_group(self, group: ConsumerGroup, now: Moment, effects: Effects) -> None:
        """The cluster gives up the protocol: members that speak the classic one stay, offsets do in any case."""
        classic = self._as_classic(group, None, now)
        tombstones = Effects()
        group.write_tombstones(tombstones, applied=True)
        if not fits(classic, self._settings().max_batch_bytes - tombstones.batch_bytes()):
            # Too much for one batch: its members are told that they are unknown, and join again.
            classic = self._as_classic(ConsumerGroup(group.group_id, self._resolver), None, now)
            classic.generation = group.epoch
        for member_id in group.members:
            self._timeouts.end(group.group_id, member_id)
        effects.add(tombstones)
        self._classic.take_over(classic, now, effects)

    def _as_classic(self, group: ConsumerGroup, leaving: ConsumerGroupMember | None, now: Moment) -> ClassicGroup:
        classic = ClassicGroup(group.group_id, now.wall_ms)
        classic.generation = group.epoch
        classic.protocol_type = CONSUMER
        for member in group.members.values():
            side = member.profile.classic
            if side is not None and (leaving is None or member.member_id != leaving.member_id):
                classic.add(self._classic_member(member, side))
        if not classic.members:
            return classic
        classic.state = CLASSIC_STABLE
        classic.protocol_name = classic.select_protocol()
        classic.learn_subscriptions()
        return classic

    def _classic_member(self, member: ConsumerGroupMember, side: ClassicMemberMetadata) -> ClassicGroupMember:
        profile = member.profile
        return ClassicGroupMember(
            member.member_id,
            profile.instance_id,
            profile.client_id,
            profile.client_host,
            profile.rebalance_timeout_ms,
            side.session_timeout_ms,
            [MemberProtocol(name, metadata) for name, metadata in side.protocols],
            assignment_bytes(member.progress.assigned, side, self._topics),
        )
