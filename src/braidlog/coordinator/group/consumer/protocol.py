"""The newer group protocol over the groups of one shard: its operations, its replay, its deadlines."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from braidlog.coordinator.deadlines import Deadlines
from braidlog.coordinator.effects import Caller, Effects, Moment, Ticket
from braidlog.coordinator.group.classic.group import ClassicGroup
from braidlog.coordinator.group.classic.protocol import ClassicProtocol
from braidlog.coordinator.group.consumer import records
from braidlog.coordinator.group.consumer.classic_members import ClassicMembers
from braidlog.coordinator.group.consumer.describing import described
from braidlog.coordinator.group.consumer.entering import enter, require_room
from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.consumer.members import (
    AWAY,
    JOINING,
    LEFT,
    UNREVOKED,
    Member,
    Profile,
    Progress,
    in_order,
    partitions_of,
)
from braidlog.coordinator.group.consumer.migration import Migration
from braidlog.coordinator.group.consumer.replaying import replay
from braidlog.coordinator.group.consumer.sessions import MISSED_AGAIN_MS, REBALANCE, SESSION, DeadlineKey, Sessions
from braidlog.coordinator.group.consumer.steps import Change, Steps
from braidlog.coordinator.group.consumer.subscriptions import Resolver
from braidlog.coordinator.group.consumer.validation import require_static, validate_heartbeat
from braidlog.coordinator.group.group import Group
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.topics import Topics
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.core.protocol_errors import (
    GroupIdNotFoundError,
    ProtocolError,
    UnknownServerError,
    UnsupportedVersionError,
)
from braidlog.wire.generated.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)
from braidlog.wire.generated.heartbeat import HeartbeatRequest
from braidlog.wire.generated.join_group import JoinGroupRequest
from braidlog.wire.generated.leave_group import LeaveGroupRequest
from braidlog.wire.generated.sync_group import SyncGroupRequest
from braidlog.wire.reader import Reader

KEY_VERSIONS = records.KEY_VERSIONS


class ConsumerProtocol:
    def __init__(
        self,
        groups: dict[str, Group],
        deadlines: Deadlines[DeadlineKey],
        settings: Callable[[], GroupSettings],
        topics: Topics,
        new_member_id: Callable[[], str],
        classic: ClassicProtocol,
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._topics = topics
        self._new_member_id = new_member_id
        self._resolver = Resolver(topics)
        self._sessions = Sessions(deadlines)
        self._steps = Steps(topics, self._resolver)
        self._migration = Migration(groups, settings, topics, self._resolver, self._sessions, classic)
        self._classic_members = ClassicMembers(settings, topics, new_member_id, self._steps, self._sessions)

    # ConsumerGroupHeartbeat

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, ticket: Ticket, now: Moment) -> Effects:
        settings = self._enabled()
        validate_heartbeat(request, caller.version, settings.consumer_assignors, self._resolver)
        if request.member_epoch in (LEFT, AWAY):
            return self._leave(request, ticket, now)
        return self._beat(request, caller, ticket, now)

    def _enabled(self) -> GroupSettings:
        settings = self._settings()
        if not settings.consumer_protocol:
            raise UnsupportedVersionError("the newer group protocol is off (group.coordinator.rebalance.protocols)")
        return settings

    def _beat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, ticket: Ticket, now: Moment) -> Effects:
        settings = self._settings()
        effects = Effects()
        found = self._groups.get(request.group_id)
        group = self._group(found, request, effects)
        require_room(group, request.member_id, settings.consumer_max_size)
        reported = request.topic_partitions
        owned = None if reported is None else partitions_of((entry.topic_id, entry.partitions) for entry in reported)
        member_id = request.member_id or self._new_member_id()
        entry = enter(group, member_id, request.instance_id, request.member_epoch, owned, effects)
        before = entry.member
        profile = _updated(before.profile, request, caller)
        change = Change(group, before, profile, owned, settings.consumer_assignors, entry.replaces)
        member = self._steps.advance(change, effects)

        if isinstance(found, ClassicGroup) and effects.batch_bytes() > settings.max_batch_bytes:
            raise UnknownServerError(f"group {request.group_id!r} is too large to go over to the newer protocol")
        # It succeeded: from here on, what is not durable may change.
        if isinstance(found, ClassicGroup):
            self._migration.finish_upgrade(found, group, now, effects)
        if before.is_classic:
            self._sessions.end(group.group_id, member_id)
        self._sessions.touch(group.group_id, member, settings.session_timeout_of(group.group_id), now)
        if member.progress != before.progress:
            self._sessions.moved(group.group_id, member, now)
        answer = ConsumerGroupHeartbeatResponse(
            member_id=member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=settings.heartbeat_interval_of(group.group_id),
        )
        if _is_full(request) or member.progress.assigned != before.progress.assigned:
            answer.assignment = _told(member)
        effects.reply(ticket, answer)
        return effects

    def _group(self, found: Group | None, request: ConsumerGroupHeartbeatRequest, effects: Effects) -> ConsumerGroup:
        """The group as it is, or as it will be once the records are written."""
        if isinstance(found, ConsumerGroup):
            return found
        if request.member_epoch == JOINING:
            if found is None:
                return ConsumerGroup(request.group_id, self._resolver)
            if isinstance(found, ClassicGroup):
                return self._migration.converted(found, effects)
        raise GroupIdNotFoundError(f"there is no group {request.group_id!r} of the newer protocol; join again")

    def _leave(self, request: ConsumerGroupHeartbeatRequest, ticket: Ticket, now: Moment) -> Effects:
        group = self._consumer_group(request.group_id)
        if request.instance_id is None:
            member = group.member(request.member_id)
        else:
            known = group.static_member(request.instance_id)
            member = require_static(known, request.member_id, request.instance_id)
        effects = Effects()
        if request.member_epoch == AWAY:
            away = _away(member.progress)
            effects.write(records.current_key(group.group_id, member.member_id), records.current_value(away))
            # Its session goes on, so it can come back within it.
            self._sessions.cancel(REBALANCE, group.group_id, member.member_id)
        else:
            self._fence(group, member, now, effects)
        answer = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        effects.reply(ticket, answer)
        return effects

    def _fence(self, group: ConsumerGroup, member: Member, now: Moment, effects: Effects) -> None:
        """The member is out: it left, or it was silent for too long."""
        if self._migration.goes_back_without(group, member) and self._migration.go_back(group, member, now, effects):
            return
        self._steps.remove(group, [member], effects)

    # ConsumerGroupDescribe

    def describe(self, group_id: str, ticket: Ticket) -> Effects:
        """Replies with one `DescribedGroup`."""
        assignors = self._enabled().consumer_assignors
        effects = Effects()
        effects.reply(ticket, described(self._consumer_group(group_id), self._topics, assignors))
        return effects

    def _consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFoundError(f"there is no group {group_id!r} of the newer protocol")
        return group

    # Members that still speak the older protocol

    def join_classic(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, ticket: Ticket, now: Moment
    ) -> Effects:
        """Of a group that is not empty; an empty one becomes a classic group (see `ConsumerGroup.write_tombstones`)."""
        return self._classic_members.join(group, request, caller, ticket, now)

    def sync_classic(
        self, group: ConsumerGroup, request: SyncGroupRequest, caller: Caller, ticket: Ticket, now: Moment
    ) -> Effects:
        return self._classic_members.sync(group, request, caller, ticket, now)

    def heartbeat_classic(
        self, group: ConsumerGroup, request: HeartbeatRequest, caller: Caller, ticket: Ticket, now: Moment
    ) -> Effects:
        return self._classic_members.heartbeat(group, request, caller, ticket, now)

    def leave_classic(
        self, group: ConsumerGroup, request: LeaveGroupRequest, caller: Caller, ticket: Ticket, now: Moment
    ) -> Effects:
        return self._classic_members.leave(group, request, caller, ticket, now)

    # What the shard passes on

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
        replay(self._groups, self._resolver, version, key, value, self._sessions.end)

    def loaded(self, now: Moment, effects: Effects) -> None:
        """Members that were there get a whole session to show that they still are."""
        settings = self._settings()
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                timeout_ms = settings.session_timeout_of(group.group_id)
                for member in group.members.values():
                    self._sessions.touch(group.group_id, member, timeout_ms, now)
                    self._sessions.moved(group.group_id, member, now)

    def on_deadline(self, key: DeadlineKey, now: Moment, effects: Effects) -> None:
        kind, group_id, member_id = key
        group = self._groups.get(group_id)
        member = group.members.get(member_id) if isinstance(group, ConsumerGroup) else None
        if not isinstance(group, ConsumerGroup) or member is None:
            return
        if kind != REBALANCE or member.progress.state == UNREVOKED:
            # Should the log refuse it, the member is missed again; otherwise its sessions end with it.
            self._sessions.set(SESSION, group_id, member_id, MISSED_AGAIN_MS, now)
            self._fence(group, member, now, effects)

    def abandon(self, error: ProtocolError, effects: Effects) -> None:
        """Nobody waits here: every request is answered by the step it takes."""

    def durable_state(self) -> object:
        groups = self._groups.items()
        return {group_id: group.durable_state() for group_id, group in groups if isinstance(group, ConsumerGroup)}


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
    """Whether the member told everything: it joins, or is not sure what the broker knows."""
    subscribes = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    told_all = request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None
    return request.member_epoch == JOINING or told_all


def _told(member: Member) -> Assignment:
    entries = in_order(member.progress.assigned)
    parts = [ResponseTopicPartitions(topic_id=topic_id, partitions=numbers) for topic_id, numbers in entries]
    return Assignment(topic_partitions=parts)


def _away(progress: Progress) -> Progress:
    """A static member that goes for a while keeps what it may own, and has given up what it had to."""
    return dataclasses.replace(progress, epoch=AWAY, revoking={})
