"""The classic group protocol over the groups of one shard: its operations, its replay, its deadlines."""

from __future__ import annotations

from collections.abc import Callable

from braidlog.coordinator.deadlines import Deadlines, GroupDeadline
from braidlog.coordinator.effects import Caller, Effects, Moment, Responder
from braidlog.coordinator.group.classic.group import EMPTY, PREPARING, STABLE, ClassicGroup
from braidlog.coordinator.group.classic.join_group import JoinAttempt, JoinGroupRules
from braidlog.coordinator.group.classic.member import MemberProtocol
from braidlog.coordinator.group.classic.rebalance import JOIN, SESSION, Rebalances, sync_response
from braidlog.coordinator.group.classic.records import plain, restore, snapshot, store
from braidlog.coordinator.group.group import Group
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.core.protocol_errors import (
    NONE,
    CoordinatorNotAvailableError,
    InconsistentGroupProtocolError,
    ProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from braidlog.wire.generated.group_records import GroupMetadataKey
from braidlog.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from braidlog.wire.generated.join_group import JoinGroupRequest
from braidlog.wire.generated.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
)
from braidlog.wire.generated.sync_group import SyncGroupRequest
from braidlog.wire.reader import Reader

# The first version of LeaveGroup that names several members.
BATCHED_FROM = 3


class ClassicGroupProtocol:
    def __init__(
        self,
        groups: dict[str, Group],
        deadlines: Deadlines[GroupDeadline],
        settings: Callable[[], GroupSettings],
        new_member_id: Callable[[], str],
    ) -> None:
        self._groups = groups
        self._settings = settings
        self._rebalances = Rebalances(deadlines, settings)
        self._join_rules = JoinGroupRules(self._rebalances, settings, new_member_id)

    def _member_group(self, group_id: str) -> ClassicGroup:
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise UnknownMemberIdError(f"there is no group {group_id!r}; join again")
        group.validate_alive()
        return group

    # Operations

    def join_group(self, request: JoinGroupRequest, caller: Caller, responder: Responder, now: Moment) -> Effects:
        self._join_rules.validate(request)
        effects = Effects()
        protocols = [MemberProtocol(protocol.name, protocol.metadata) for protocol in request.protocols]
        attempt = JoinAttempt(request, protocols, caller, responder, now, effects)
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            self._join_rules.join(group, attempt)
            return effects
        if request.member_id:
            raise UnknownMemberIdError(f"there is no group {request.group_id!r}; join again")
        group = ClassicGroup(request.group_id, now.wall_ms)
        store(group, effects)
        self._join_rules.join(group, attempt)
        self._groups[request.group_id] = group
        return effects

    def sync_group(self, request: SyncGroupRequest, caller: Caller, responder: Responder, now: Moment) -> Effects:
        group = self._member_group(request.group_id)
        group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        for requested, known in (
            (request.protocol_type, group.protocol_type),
            (request.protocol_name, group.protocol_name),
        ):
            if requested is not None and known is not None and requested != known:
                raise InconsistentGroupProtocolError(f"the group uses {known!r}, not {requested!r}")
        if group.state == PREPARING:
            raise RebalanceInProgressError(f"group {group.group_id!r} rebalances; join again")
        effects = Effects()
        member = group.members[request.member_id]
        self._rebalances.synced(group, member.member_id)
        if group.state == STABLE:
            effects.reply(responder, sync_response(group, member))
            return effects
        if member.sync_responder is not None:
            effects.reply(member.sync_responder, RebalanceInProgressError("the member sent a newer sync"))
        member.sync_responder = responder
        if group.leader == member.member_id:
            assignments = {part.member_id: part.assignment for part in request.assignments}
            self._rebalances.propagate_assignment(group, assignments, now, effects)
        return effects

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, responder: Responder, now: Moment) -> Effects:
        group = self._member_group(request.group_id)
        group.validate_member(request.member_id, request.group_instance_id)
        group.validate_generation(request.generation_id)
        self._rebalances.touch(group, group.members[request.member_id], now)
        effects = Effects()
        if group.state == PREPARING:
            effects.reply(responder, RebalanceInProgressError(f"group {group.group_id!r} rebalances; join again"))
        else:
            effects.reply(responder, HeartbeatResponse())
        return effects

    def leave_group(self, request: LeaveGroupRequest, caller: Caller, responder: Responder, now: Moment) -> Effects:
        if caller.version >= BATCHED_FROM:
            leaving = request.members
        else:
            leaving = [MemberIdentity(member_id=request.member_id)]
        effects = Effects()
        group = self._groups.get(request.group_id)
        if isinstance(group, ClassicGroup):
            group.validate_alive()
            before = len(group.members)
            left = [self._leave(group, member, effects) for member in leaving]
            if len(group.members) < before:
                self._rebalances.after_removal(group, now, effects)
            else:
                self._rebalances.maybe_complete_join(group, now, effects)
        else:
            left = [UnknownMemberIdError.code] * len(leaving)
        effects.reply(responder, _left(caller.version, leaving, left))
        return effects

    def _leave(self, group: ClassicGroup, identity: MemberIdentity, effects: Effects) -> int:
        member_id = identity.member_id
        if not member_id and identity.group_instance_id is not None:
            # An administrator removes a static member without knowing its id.
            member_id = group.static_members.get(identity.group_instance_id, "")
        elif member_id in group.pending_joins:
            self._rebalances.end_session(group, member_id)
            group.remove(member_id)
            return NONE
        try:
            group.validate_member(member_id, identity.group_instance_id)
        except ProtocolError as error:
            return error.code
        self._rebalances.remove_member(group, group.members[member_id], effects)
        return NONE

    # For the other parts

    def extend_session(self, group: Group, member_id: str, now: Moment) -> None:
        """A member's commit keeps its session alive too."""
        if isinstance(group, ClassicGroup) and group.state in (STABLE, PREPARING):
            member = group.members.get(member_id)
            if member is not None:
                self._rebalances.touch(group, member, now)

    def dissolve(self, group: ClassicGroup, error: ProtocolError, now: Moment, effects: Effects) -> None:
        """The group goes on under the consumer protocol: waiting requests fail. Its record is the caller's."""
        self._rebalances.dissolve(group, error, effects, now.wall_ms)

    def take_over(self, group: ClassicGroup, now: Moment, effects: Effects) -> None:
        """Go on with a group of the consumer protocol: Stable with members and assignments, and a rebalance follows, or
        Empty."""
        self._groups[group.group_id] = group
        store(group, effects)
        for member in group.members.values():
            self._rebalances.touch(group, member, now)
        if group.members:
            self._rebalances.prepare_rebalance(group, now, effects)

    # What the shard passes on

    def replay(self, version: int, key: Reader, value: bytes | None, record: ReplayedRecord) -> None:
        group_id = GroupMetadataKey.decode(key, version).group
        if value is not None:
            self._groups[group_id] = restore(group_id, value)
            return
        group = self._groups.get(group_id)
        if isinstance(group, ClassicGroup):
            # Only an Empty group is deleted, so no request waits: those with an id but no membership join anew.
            gone = CoordinatorNotAvailableError(f"group {group_id!r} is gone; look up its coordinator again")
            self._rebalances.dissolve(group, gone, Effects(), record.timestamp)
            del self._groups[group_id]

    def on_loaded(self, now: Moment, effects: Effects) -> None:
        """Members that were there get a whole session to show that they still are."""
        for group in list(self._groups.values()):
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    self._rebalances.touch(group, member, now)
                if len(group.members) > self._settings().max_size:
                    # The limit was lowered: the last to join again will not find room.
                    self._rebalances.prepare_rebalance(group, now, effects)

    def on_deadline(self, key: GroupDeadline, now: Moment, effects: Effects) -> None:
        kind, group_id, member_id = key
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return
        if kind == SESSION:
            self._rebalances.on_session_timeout(group, member_id, now, effects)
        elif kind == JOIN:
            self._rebalances.on_join_timeout(group, now, effects)
        else:
            self._rebalances.on_sync_timeout(group, now, effects)

    def on_unloaded(self, error: ProtocolError, effects: Effects) -> None:
        for group in self._groups.values():
            if isinstance(group, ClassicGroup):
                for member in group.members.values():
                    self._rebalances.fail_waiting(group, member, error, effects)

    def durable_state(self) -> object:
        state = {}
        for group_id, group in self._groups.items():
            if isinstance(group, ClassicGroup) and group.stored is not None:
                settled = group.state in (STABLE, EMPTY)
                state[group_id] = plain(snapshot(group) if settled else group.stored)
        return state


def _left(version: int, leaving: list[MemberIdentity], errors: list[int]) -> LeaveGroupResponse:
    if version < BATCHED_FROM:
        return LeaveGroupResponse(error_code=errors[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error)
            for member, error in zip(leaving, errors, strict=True)
        ]
    )
