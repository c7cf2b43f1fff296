"""The shard of one partition of `__consumer_offsets`: which part answers what.

    classic     join, sync, heartbeat and leave of groups that assign among themselves    record key 2
    consumer    the consumer protocol, where the coordinator assigns                         record keys 3 and up
    offsets     what groups committed, whichever protocol they speak                      record keys 0 and 1

The parts share the groups and the deadlines. A live group may go over from one protocol to the other, so whatever
concerns members is first looked up here: the kind of the group says which part answers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from braidlog.coordinator.deadlines import Deadlines, GroupDeadline
from braidlog.coordinator.effects import Caller, Effects, Moment, Responder
from braidlog.coordinator.group.classic.group import KEY_VERSION, ClassicGroup
from braidlog.coordinator.group.classic.protocol import ClassicGroupProtocol
from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.consumer.protocol import KEY_VERSIONS, ConsumerGroupProtocol
from braidlog.coordinator.group.group import Group
from braidlog.coordinator.group.offset_metadata_manager import OffsetMetadataManager
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.topics import Topics
from braidlog.coordinator.shard import ReplayedRecord, UnknownRecordTypeError
from braidlog.core.protocol_errors import GroupIdNotFoundError, InvalidGroupIdError, ProtocolError
from braidlog.wire.errors import MalformedError
from braidlog.wire.generated.delete_groups import DeletableGroupResult
from braidlog.wire.generated.heartbeat import HeartbeatRequest
from braidlog.wire.generated.join_group import JoinGroupRequest
from braidlog.wire.generated.leave_group import LeaveGroupRequest
from braidlog.wire.generated.list_groups import ListGroupsRequest, ListGroupsResponse
from braidlog.wire.generated.sync_group import SyncGroupRequest
from braidlog.wire.version_prefix import read_version_prefix, reader_after_version

# A deadline that is seen so much later than it was due shows that the broker itself stood still (paused, or
# overloaded): what members sent meanwhile is not read yet, so they get as long again before they are missed.
STOOD_STILL_S: Final = 1.0


class GroupCoordinatorShard:
    def __init__(self, settings: Callable[[], GroupSettings], topics: Topics, new_member_id: Callable[[], str]) -> None:
        self.groups: dict[str, Group] = {}
        self.deadlines: Deadlines[GroupDeadline] = Deadlines()
        self.classic = ClassicGroupProtocol(self.groups, self.deadlines, settings, new_member_id)
        self.consumer = ConsumerGroupProtocol(
            self.groups, self.deadlines, settings, topics, new_member_id, self.classic
        )
        self.offsets = OffsetMetadataManager(
            self.groups, self.deadlines, settings, topics, ClassicGroup, self.classic.extend_session
        )

        # What one part answers alone goes straight to it.
        self.consumer_heartbeat = self.consumer.heartbeat
        self.commit_offsets = self.offsets.commit_offsets
        self.commit_txn_offsets = self.offsets.commit_txn_offsets
        self.fetch_offsets = self.offsets.fetch_offsets
        self.delete_offsets = self.offsets.delete_offsets
        self.topics_deleted = self.offsets.topics_deleted
        self.replay_end_transaction_marker = self.offsets.replay_end_transaction_marker

    # Members

    def join_group(self, request: JoinGroupRequest, caller: Caller, responder: Responder, now: Moment) -> Effects:
        require_group_id(request.group_id)
        group = self.groups.get(request.group_id)
        if not isinstance(group, ConsumerGroup):
            return self.classic.join_group(request, caller, responder, now)
        if not group.is_empty():
            return self.consumer.classic_members.join(group, request, caller, responder, now)
        # No member of the consumer protocol is left: the group begins anew, its offsets stay.
        effects = Effects()
        group.write_tombstones(effects, applied=True)
        effects.add(self.classic.join_group(request, caller, responder, now))
        return effects

    def sync_group(self, request: SyncGroupRequest, caller: Caller, responder: Responder, now: Moment) -> Effects:
        require_group_id(request.group_id)
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self.consumer.classic_members.sync(group, request, caller, responder, now)
        return self.classic.sync_group(request, caller, responder, now)

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, responder: Responder, now: Moment) -> Effects:
        require_group_id(request.group_id)
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self.consumer.classic_members.heartbeat(group, request, caller, responder, now)
        return self.classic.heartbeat(request, caller, responder, now)

    def leave_group(self, request: LeaveGroupRequest, caller: Caller, responder: Responder, now: Moment) -> Effects:
        require_group_id(request.group_id)
        group = self.groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return self.consumer.classic_members.leave(group, request, caller, responder, now)
        return self.classic.leave_group(request, caller, responder, now)

    # Groups as a whole

    def describe_group(self, group_id: str, responder: Responder, now: Moment) -> Effects:
        """Replies with one `DescribedGroup`."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise GroupIdNotFoundError(f"there is no classic group {group_id!r}")
        effects = Effects()
        effects.reply(responder, group.as_described_group())
        return effects

    def describe_consumer_group(self, group_id: str, responder: Responder, now: Moment) -> Effects:
        """Replies with one `DescribedGroup` of ConsumerGroupDescribe."""
        return self.consumer.describe(group_id, responder)

    def list_groups(self, request: ListGroupsRequest, responder: Responder, now: Moment) -> Effects:
        """Those that the filters, which ignore case, let through; an empty one lets all."""
        states = {state.lower() for state in request.states_filter}
        kinds = {kind.lower() for kind in request.types_filter}
        listed = [
            group.as_listed_group()
            for group in self.groups.values()
            if (not states or group.state_name().lower() in states) and (not kinds or group.kind in kinds)
        ]
        effects = Effects()
        effects.reply(responder, ListGroupsResponse(groups=listed))
        return effects

    def delete_group(self, group_id: str, responder: Responder, now: Moment) -> Effects:
        """The group and its offsets go in one batch; replies with one `DeletableGroupResult`."""
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFoundError(f"there is no group {group_id!r}")
        group.validate_delete()
        effects = Effects()
        self.offsets.tombstone_all(group_id, effects)
        group.write_tombstones(effects)
        effects.reply(responder, DeletableGroupResult(group_id=group_id))
        return effects

    # Changes of the cluster

    def topics_changed(self, now: Moment) -> Effects:
        """Topics are new, or have more partitions; classic members watch that themselves."""
        effects = Effects()
        self.consumer.topics_changed(now, effects)
        return effects

    def end_consumer_protocol(self, now: Moment) -> Effects:
        """The cluster goes on without the consumer protocol: its groups become classic ones, each in its own turn."""
        self.consumer.end_protocol(now)
        return Effects()

    # For the runtime

    def replay(self, record: ReplayedRecord) -> None:
        version = read_version_prefix(record.key)
        key = reader_after_version(record.key)
        if version < 0:
            raise MalformedError(f"a key of version {version} cannot be")
        if version < KEY_VERSION:
            self.offsets.replay(version, key, record.value, record)
        elif version == KEY_VERSION:
            self.classic.replay(version, key, record.value, record)
        elif version in KEY_VERSIONS:
            self.consumer.replay(version, key, record.value, record)
        else:
            raise UnknownRecordTypeError(version)

    def on_loaded(self, now: Moment) -> Effects:
        effects = Effects()
        self.classic.on_loaded(now, effects)
        self.consumer.on_loaded(now, effects)
        self.offsets.on_loaded(now, effects)
        return effects

    def next_deadline(self) -> float | None:
        return self.deadlines.next()

    def expire(self, now: Moment) -> Effects:
        """What the first deadline that changes anything does; the others stay due.

        So each group's records are a batch of their own, replayed before the next group is looked at, and whatever
        goes wrong with one concerns it alone.
        """
        effects = Effects()
        earliest = self.deadlines.next()
        stood_still = earliest is not None and now.monotonic - earliest > STOOD_STILL_S
        while effects.is_empty() or stood_still:
            key = self.deadlines.pop_first_due(now.monotonic)
            if key is None:
                break
            part, _, _ = key[0].partition(".")
            if stood_still and part != "offsets":
                self.deadlines.set(key, now.monotonic + STOOD_STILL_S)
            elif part == "classic":
                self.classic.on_deadline(key, now, effects)
            elif part == "consumer":
                self.consumer.on_deadline(key, now, effects)
            else:
                self.offsets.on_deadline(key, now, effects)
        return effects

    def on_unloaded(self, error: ProtocolError) -> Effects:
        effects = Effects()
        self.classic.on_unloaded(error, effects)
        self.consumer.on_unloaded(error, effects)
        return effects

    def durable_state(self) -> object:
        return {
            "classic": self.classic.durable_state(),
            "consumer": self.consumer.durable_state(),
            "offsets": self.offsets.durable_state(),
        }


def require_group_id(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupIdError("members join a group by its id; it is empty")
