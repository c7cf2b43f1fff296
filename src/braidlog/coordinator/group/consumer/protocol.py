"""The consumer group protocol over the groups of one shard: its operations, its replay, its deadlines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Final

from braidlog.coordinator.deadlines import Deadlines, GroupDeadline
from braidlog.coordinator.effects import Caller, Effects, Moment, Responder
from braidlog.coordinator.group.classic.group import ClassicGroup
from braidlog.coordinator.group.classic.protocol import ClassicGroupProtocol
from braidlog.coordinator.group.consumer import records
from braidlog.coordinator.group.consumer.classic_members import ClassicMembers
from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.consumer.member import (
    AWAY,
    JOINING,
    LEFT,
    UNREVOKED,
    ConsumerGroupMember,
    Profile,
    Progress,
    in_order,
    partitions_of,
)
from braidlog.coordinator.group.consumer.member_timeouts import (
    CONVERSION,
    REBALANCE,
    RETRY_MS,
    SESSION,
    MemberTimeouts,
)
from braidlog.coordinator.group.consumer.member_updates import MemberUpdate, MemberUpdates
from braidlog.coordinator.group.consumer.migration import Migration
from braidlog.coordinator.group.consumer.subscriptions import TopicRegexResolver
from braidlog.coordinator.group.group import Group
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.topics import Topics
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.core.protocol_errors import (
    GroupIdNotFoundError,
    InvalidRequestError,
    ProtocolError,
    UnknownServerError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated import group_records as layouts
from braidlog.wire.generated.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from braidlog.wire.reader import Reader
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version

KEY_VERSIONS = records.KEY_VERSIONS
# The first version in which members choose their ids, and may subscribe with a pattern.
OWN_ID_FROM: Final = 1


class ConsumerGroupProtocol:
    def __init__(
        self,
        groups: dict[str, Group],
        deadlines: Deadlines[GroupDeadline],
        settings: Callable[[], GroupSettings],
        topics: Topics,
        new_member_id: Callable[[], str],
        classic: ClassicGroupProtocol,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._topics = topics
        self._new_member_id = new_member_id
        self._resolver = TopicRegexResolver(topics)
        self._timeouts = MemberTimeouts(deadlines)
        self._updates = MemberUpdates(topics, self._resolver)
        self._migration = Migration(groups, settings, topics, self._resolver, self._timeouts, classic)
        # JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members that still speak the classic protocol.
        self.classic_members = ClassicMembers(settings, topics, new_member_id, self._updates, self._timeouts)

    # ConsumerGroupHeartbeat

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, responder: Responder, now: Moment
    ) -> Effects:
        settings = self._enabled()
        _validate_heartbeat(request, caller.version, settings.consumer_assignors, self._resolver)
        if request.member_epoch in (LEFT, AWAY):
            return self._leave(request, responder, now)
        return self._member_heartbeat(request, caller, responder, now)

    def _enabled(self) -> GroupSettings:
        settings = self._settings()
        if settings.group_version < 1:
            raise UnsupportedVersionError("the consumer group protocol is off in this cluster (feature group.version)")
        if not settings.consumer_protocol:
            raise UnsupportedVersionError("the consumer group protocol is off (group.coordinator.rebalance.protocols)")
        return settings

    def _member_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, responder: Responder, now: Moment
    ) -> Effects:
        settings = self._settings()
        effects = Effects()
        found = self._groups.get(request.group_id)
        group = self._group(found, request, effects)
        group.require_not_full(request.member_id, settings.consumer_max_size)
        reported = request.topic_partitions
        owned = None if reported is None else partitions_of((entry.topic_id, entry.partitions) for entry in reported)
        member_id = request.member_id or self._new_member_id()
        entry = group.get_or_create_member(member_id, request.instance_id, request.member_epoch, owned, effects)
        before = entry.member
        profile = _updated(before.profile, request, caller)
        change = MemberUpdate(group, before, profile, owned, settings.consumer_assignors, entry.replaces)
        member = self._updates.advance(change, effects)

        if isinstance(found, ClassicGroup) and effects.batch_bytes() > settings.max_batch_bytes:
            raise UnknownServerError(f"group {request.group_id!r} is too large to go over to the consumer protocol")
        # It succeeded: what is not durable may change from here on.
        if isinstance(found, ClassicGroup):
            self._migration.finish_upgrade(found, group, now, effects)
        if before.is_classic:
            self._timeouts.end(group.group_id, member_id)
        self._timeouts.touch(group.group_id, member, settings.session_timeout_of(group.group_id), now)
        if member.progress != before.progress:
            self._timeouts.reschedule_rebalance_timeout(group.group_id, member, now)
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_of(group.group_id),
        )
        if _is_full(request) or member.progress.assigned != before.progress.assigned:
            answer.assignment = _response_assignment(member)
        effects.reply(responder, answer)
        return effects

    def _group(self, found: Group | None, request: ConsumerGroupHeartbeatRequest, effects: Effects) -> ConsumerGroup:
        """The group as it is, or as it will be once the records are written."""
        if isinstance(found, ConsumerGroup):
            return found
        if request.member_epoch == JOINING:
            if found is None:
                return ConsumerGroup(request.group_id, self._resolver)
            if isinstance(found, ClassicGroup):
                return self._migration.convert_to_consumer_group(found, effects)
        raise GroupIdNotFoundError(f"there is no group {request.group_id!r} of the consumer protocol; join again")

    def _leave(self, request: ConsumerGroupHeartbeatRequest, responder: Responder, now: Moment) -> Effects:
        group = self._consumer_group(request.group_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            member = group.require_static_member(request.instance_id, request.member_id)
        effects = Effects()
        if request.member_epoch == AWAY:
            away = _away(member.progress)
            effects.write(records.current_key(group.group_id, member.member_id), records.current_value(away))
            # Its session goes on, so it can come back within it.
            self._timeouts.cancel(REBALANCE, group.group_id, member.member_id)
        else:
            self._fence(group, member, now, effects)
        answer = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        effects.reply(responder, answer)
        return effects

    def _fence(self, group: ConsumerGroup, member: ConsumerGroupMember, now: Moment, effects: Effects) -> None:
        """The member is out: it left, or it was silent for too long."""
        if self._migration.is_online_downgrade(group, member) and self._migration.convert_to_classic_group(
            group, member, now, effects
        ):
            return
        self._updates.remove(group, [member], effects)

    # ConsumerGroupDescribe

    def describe(self, group_id: str, responder: Responder) -> Effects:
        """Replies with one `DescribedGroup`."""
        assignors = self._enabled().consumer_assignors
        effects = Effects()
        effects.reply(responder, self._consumer_group(group_id).as_described_group(self._topics, assignors))
        return effects

    def _consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFoundError(f"there is no group {group_id!r} of the consumer protocol")
        return group

    # For the shard

    def topics_changed(self, now: Moment, effects: Effects) -> None:
        """Each group looks at its topics with the next heartbeat, so a change costs idle groups nothing."""
        self._resolver.topics_changed()
        used: list[str] = []
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                group.topics_stale = True
                used += group.regexes
        self._resolver.forget_unused(used)

    def replay(self, version: int, key: Reader, value: bytes | None, record: ReplayedRecord) -> None:
        """Put a record back into the group that it came from.

        Compaction may have taken a group's older records away, so any of them may be the first, and a tombstone may
        name what is not there.
        """
        if version not in records.KEY_VERSIONS or version == records.REGEX:
            return
        group_id = key.string(False)
        group = self._replayed_group(group_id, create=value is not None)
        if group is None:
            return
        body = None if value is None else _body(group_id, version, value)
        if version == records.GROUP_EPOCH:
            if body is None:
                del self._groups[group_id]
            else:
                group.epoch = layouts.ConsumerGroupMetadataValue.decode(body, 0).epoch
        elif version == records.TOPICS:
            topics = layouts.ConsumerGroupPartitionMetadataValue()
            group.subscription_metadata = records.topics_from(topics if body is None else topics.decode(body, 0))
        elif version == records.TARGET_EPOCH:
            target = layouts.ConsumerGroupTargetAssignmentMetadataValue
            group.target_epoch = -1 if body is None else target.decode(body, 0).assignment_epoch
        else:
            self._replay_member(group, version, key.string(False), body)

    def _replay_member(self, group: ConsumerGroup, version: int, member_id: str, body: Reader | None) -> None:
        if version == records.TARGET:
            target = layouts.ConsumerGroupTargetAssignmentMemberValue
            group.put_target(member_id, None if body is None else records.target_from(target.decode(body, 0)))
        elif version == records.CURRENT:
            current = layouts.ConsumerGroupCurrentMemberAssignmentValue
            group.put_progress(member_id, None if body is None else records.progress_from(current.decode(body, 0)))
        elif body is None:
            group.remove_member(member_id)
            self._timeouts.end(group.group_id, member_id)
        else:
            value = layouts.ConsumerGroupMemberMetadataValue.decode(body, 0)
            group.put_profile(member_id, records.profile_from(value))

    def _replayed_group(self, group_id: str, create: bool) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if not create:
            return None
        if group is not None and not group.is_empty():
            raise MalformedError(f"group {group_id!r} has classic members, and a record of the consumer protocol")
        # An empty one stands there for offsets that were committed before, and is not in the log itself.
        made = ConsumerGroup(group_id, self._resolver)
        self._groups[group_id] = made
        return made

    def end_protocol(self, now: Moment) -> None:
        """Every group is to be written anew as a classic one."""
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                self._timeouts.set(CONVERSION, group.group_id, "", 0, now)

    def on_loaded(self, now: Moment, effects: Effects) -> None:
        """Members that were there get a whole session to show that they still are."""
        settings = self._settings()
        if settings.group_version < 1:
            self.end_protocol(now)
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                timeout_ms = settings.session_timeout_of(group.group_id)
                for member in group.members.values():
                    self._timeouts.touch(group.group_id, member, timeout_ms, now)
                    self._timeouts.reschedule_rebalance_timeout(group.group_id, member, now)

    def on_deadline(self, key: GroupDeadline, now: Moment, effects: Effects) -> None:
        kind, group_id, member_id = key
        group = self._groups.get(group_id)
        if kind == CONVERSION:
            if isinstance(group, ConsumerGroup) and self._settings().group_version < 1:
                # Should the log refuse it, it is tried again; otherwise the group is none of these any more.
                self._timeouts.set(CONVERSION, group_id, "", RETRY_MS, now)
                self._migration.end_consumer_group(group, now, effects)
            return
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if not isinstance(group, ConsumerGroup) or member is None:
            return
        if kind != REBALANCE or member.progress.state == UNREVOKED:
            # Should the log refuse it, the member is missed again; otherwise its sessions end with it.
            self._timeouts.set(SESSION, group_id, member_id, RETRY_MS, now)
            self._fence(group, member, now, effects)

    def on_unloaded(self, error: ProtocolError, effects: Effects) -> None:
        """No request waits here: each is answered by the operation that served it."""

    def durable_state(self) -> object:
        groups = self._groups.items()
        return {group_id: group.durable_state() for group_id, group in groups if isinstance(group, ConsumerGroup)}


def _validate_heartbeat(
    request: ConsumerGroupHeartbeatRequest, version: int, assignors: Sequence[str], resolver: TopicRegexResolver
) -> None:
    for name, text in (
        ("GroupId", request.group_id),
        ("InstanceId", request.instance_id),
        ("RackId", request.rack_id),
    ):
        if text is not None and not text.strip():
            raise InvalidRequestError(f"{name} must not be empty")
    epoch = request.member_epoch
    if (version >= OWN_ID_FROM or epoch != JOINING) and not request.member_id.strip():
        raise InvalidRequestError("MemberId must not be empty")
    if epoch == JOINING:
        _validate_join(request, version)
    elif epoch == AWAY:
        if request.instance_id is None:
            raise InvalidRequestError("InstanceId must be there: only static members leave for a while")
    elif epoch < LEFT:
        raise InvalidRequestError(f"MemberEpoch {epoch} is invalid")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        message = f"there is no assignor {request.server_assignor!r}, only {', '.join(assignors)}"
        raise UnsupportedAssignorError(message)
    if request.subscribed_topic_regex:
        resolver.validate(request.subscribed_topic_regex)


def _validate_join(request: ConsumerGroupHeartbeatRequest, version: int) -> None:
    if request.rebalance_timeout_ms == -1:
        raise InvalidRequestError("RebalanceTimeoutMs must be there when joining")
    if request.topic_partitions is None or request.topic_partitions:
        raise InvalidRequestError("TopicPartitions must be there, and empty, when joining")
    names = request.subscribed_topic_names
    if version < OWN_ID_FROM:
        if not names:
            raise InvalidRequestError("SubscribedTopicNames must be there when joining")
    elif names is None and request.subscribed_topic_regex is None:
        raise InvalidRequestError("SubscribedTopicNames or SubscribedTopicRegex must be there when joining")


def _updated(profile: Profile, request: ConsumerGroupHeartbeatRequest, caller: Caller) -> Profile:
    """What the request does not mention stays as it was."""
    names, timeout_ms = request.subscribed_topic_names, request.rebalance_timeout_ms
    reported = Profile(
        instance_id=profile.instance_id if request.instance_id is None else request.instance_id,
        rack_id=profile.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.host,
        topics=profile.topics if names is None else tuple(sorted(set(names))),
        regex=profile.regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
        rebalance_timeout_ms=profile.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        assignor=profile.assignor if request.server_assignor is None else request.server_assignor,
    )
    return profile if reported == profile else reported


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says everything: it joins, or is not sure what the broker knows."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    complete = request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None
    return request.member_epoch == JOINING or complete


def _response_assignment(member: ConsumerGroupMember) -> Assignment:
    entries = in_order(member.progress.assigned)
    parts = [ResponseTopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in entries]
    return Assignment(topic_partitions=parts)


def _away(progress: Progress) -> Progress:
    """A static member that goes for a while keeps what it may own, and has given up what it had to."""
    return dataclasses.replace(progress, epoch=AWAY, revoking={})


def _body(group_id: str, version: int, value: bytes) -> Reader:
    found = read_version_prefix(value)
    if found != records.VALUE_VERSION:
        raise MalformedError(f"record {version} of group {group_id!r} has a value of version {found}")
    return reader_after_version(value)
