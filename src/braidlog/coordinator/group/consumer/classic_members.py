"""JoinGroup, SyncGroup, Heartbeat and LeaveGroup of members that have not gone over yet, in a group that has.

To such a member the group looks as if another one led it: it joins and gets its epoch as the generation, its sync is
answered with what it may own, and REBALANCE_IN_PROGRESS makes it join again whenever there is a next step for it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from braidlog.coordinator.effects import Caller, Effects, Moment, Responder
from braidlog.coordinator.group.classic.consumer_protocol import parse_subscription
from braidlog.coordinator.group.classic.group import CONSUMER
from braidlog.coordinator.group.classic.join_group import KNOWN_ID_FROM, rebalance_timeout_of
from braidlog.coordinator.group.classic.member import MemberProtocol
from braidlog.coordinator.group.classic.protocol import BATCHED_FROM
from braidlog.coordinator.group.consumer.classic_assignment import assignment_bytes, owned_by_id
from braidlog.coordinator.group.consumer.group import ConsumerGroup, MemberLookup
from braidlog.coordinator.group.consumer.member import (
    UNRELEASED,
    UNREVOKED,
    ClassicMemberMetadata,
    ConsumerGroupMember,
)
from braidlog.coordinator.group.consumer.member_timeouts import JOIN, SYNC, MemberTimeouts
from braidlog.coordinator.group.consumer.member_updates import MemberUpdate, MemberUpdates
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.coordinator.group.topics import Topics
from braidlog.core.protocol_errors import (
    NONE,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    ProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from braidlog.wire.generated.consumer_protocol import ConsumerProtocolSubscription
from braidlog.wire.generated.heartbeat import HeartbeatRequest, HeartbeatResponse
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse
from braidlog.wire.generated.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupResponse


class ClassicMembers:
    def __init__(
        self,
        settings: Callable[[], GroupSettings],
        topics: Topics,
        new_member_id: Callable[[], str],
        updates: MemberUpdates,
        timeouts: MemberTimeouts,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._new_member_id = new_member_id
        self._updates = updates
        self._timeouts = timeouts

    def join(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, responder: Responder, now: Moment
    ) -> Effects:
        settings = self._settings()
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            raise InvalidSessionTimeoutError(f"session timeout {request.session_timeout_ms} ms is not allowed")
        is_new = not request.member_id
        member_id = request.member_id or self._new_member_id()
        group.require_not_full(member_id, settings.consumer_max_size)
        subscription = _subscription(group, request)
        effects = Effects()
        if is_new and request.group_instance_id is None and caller.version >= KNOWN_ID_FROM:
            effects.reply(responder, JoinGroupResponse(error_code=MemberIdRequiredError.code, member_id=member_id))
            return effects
        entry = group.get_or_create_classic_member(member_id, request.group_instance_id, is_new, effects)
        member = self._advance(group, entry, request, subscription, caller, effects)
        self._timeouts.cancel(JOIN, group.group_id, member_id)
        self._timeouts.touch(group.group_id, member, settings.session_timeout_of(group.group_id), now)
        self._timeouts.set(SYNC, group.group_id, member_id, member.profile.rebalance_timeout_ms, now)
        answer = JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=CONSUMER,
            protocol_name=request.protocols[0].name,
            member_id=member_id,
        )
        effects.reply(responder, answer)
        return effects

    def _advance(
        self,
        group: ConsumerGroup,
        entry: MemberLookup,
        request: JoinGroupRequest,
        subscription: ConsumerProtocolSubscription,
        caller: Caller,
        effects: Effects,
    ) -> ConsumerGroupMember:
        protocols = tuple(MemberProtocol(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
        before = entry.member.profile
        profile = dataclasses.replace(
            before,
            instance_id=request.group_instance_id or before.instance_id,
            rack_id=subscription.rack_id or before.rack_id,
            client_id=caller.client_id,
            client_host=caller.host,
            topics=tuple(sorted(set(subscription.topics))),
            regex="",
            rebalance_timeout_ms=rebalance_timeout_of(request, caller.version),
            classic=ClassicMemberMetadata(request.session_timeout_ms, protocols),
        )
        owned = owned_by_id(subscription.owned_partitions, self._topics)
        assignors = self._settings().consumer_assignors
        return self._updates.advance(
            MemberUpdate(group, entry.member, profile, owned, assignors, entry.replaces), effects
        )

    def sync(
        self, group: ConsumerGroup, request: SyncGroupRequest, caller: Caller, responder: Responder, now: Moment
    ) -> Effects:
        member, side = _classic_member(group, request.member_id, request.group_instance_id)
        _require_generation(member, request.generation_id)
        names = {protocol.name for protocol in side.protocols}
        if request.protocol_type not in (None, CONSUMER) or (
            request.protocol_name is not None and request.protocol_name not in names
        ):
            message = f"member {member.member_id!r} offered {sorted(names)}, not {request.protocol_name!r}"
            raise InconsistentGroupProtocolError(message)
        if group.epoch > member.epoch and member.progress.state != UNREVOKED:
            # One that has to give something up first takes what it keeps, and joins again after.
            self._ask_to_join(group, member, now)
            raise RebalanceInProgressError(f"group {group.group_id!r} has changed; join again")
        self._timeouts.cancel(SYNC, group.group_id, member.member_id)
        self._timeouts.touch(group.group_id, member, 0, now)
        effects = Effects()
        answer = SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=assignment_bytes(member.progress.assigned, side, self._topics),
        )
        effects.reply(responder, answer)
        return effects

    def heartbeat(
        self, group: ConsumerGroup, request: HeartbeatRequest, caller: Caller, responder: Responder, now: Moment
    ) -> Effects:
        member, _ = _classic_member(group, request.member_id, request.group_instance_id)
        _require_generation(member, request.generation_id)
        self._timeouts.touch(group.group_id, member, 0, now)
        effects = Effects()
        state = member.progress.state
        if (
            member.epoch < group.epoch
            or state == UNREVOKED
            or (state == UNRELEASED and not group.waits_for_others(member))
        ):
            self._ask_to_join(group, member, now)
            message = f"there is something new for member {member.member_id!r}; join again"
            effects.reply(responder, RebalanceInProgressError(message))
        else:
            effects.reply(responder, HeartbeatResponse())
        return effects

    def leave(
        self, group: ConsumerGroup, request: LeaveGroupRequest, caller: Caller, responder: Responder, now: Moment
    ) -> Effects:
        batched = caller.version >= BATCHED_FROM
        leaving = request.members if batched else [MemberIdentity(member_id=request.member_id)]
        effects = Effects()
        gone: dict[str, ConsumerGroupMember] = {}
        answers: list[MemberResponse] = []
        for identity in leaving:
            code = NONE
            try:
                member = _leaving(group, identity)
                if member.member_id in gone:
                    raise UnknownMemberIdError(f"member {member.member_id!r} is named twice")
                gone[member.member_id] = member
            except ProtocolError as error:
                code = error.code
            answers.append(
                MemberResponse(
                    member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code
                )
            )
        self._updates.remove(group, list(gone.values()), effects)
        if batched:
            effects.reply(responder, LeaveGroupResponse(members=answers))
        else:
            effects.reply(responder, LeaveGroupResponse(error_code=answers[0].error_code))
        return effects

    def _ask_to_join(self, group: ConsumerGroup, member: ConsumerGroupMember, now: Moment) -> None:
        timeout_ms = member.profile.rebalance_timeout_ms
        self._timeouts.set_if_none(JOIN, group.group_id, member.member_id, timeout_ms, now)


def _subscription(group: ConsumerGroup, request: JoinGroupRequest) -> ConsumerProtocolSubscription:
    """What the joining member reads; every member of the classic protocol must offer one way in common."""
    offered = [protocol.name for protocol in request.protocols]
    own = group.members.get(request.member_id)
    mine = own.profile.classic if own is not None else None
    others = group.classic_members - (mine is not None)
    common = False
    for name in offered:
        supporters = group.classic_protocols.get(name, 0)
        if mine is not None and any(protocol.name == name for protocol in mine.protocols):
            supporters -= 1
        common = common or supporters == others
    if request.protocol_type != CONSUMER or not common:
        raise InconsistentGroupProtocolError(f"{request.protocol_type!r} with {offered} does not fit the group")
    subscription = parse_subscription(request.protocols[0].metadata)
    if subscription is None:
        raise InconsistentGroupProtocolError("what the member reads cannot be understood")
    return subscription


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerGroupMember, ClassicMemberMetadata]:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = group.require_static_member(instance_id, member_id)
    side = member.profile.classic
    if side is None:
        raise UnknownMemberIdError(f"member {member_id!r} speaks the consumer protocol")
    return member, side


def _leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerGroupMember:
    instance = identity.group_instance_id
    member_id = identity.member_id
    if instance is not None and not member_id:
        # An administrator removes a static member without knowing its id.
        known = group.static_member(instance)
        member_id = "" if known is None else known.member_id
    return _classic_member(group, member_id, instance)[0]


def _require_generation(member: ConsumerGroupMember, generation: int) -> None:
    if generation != member.epoch:
        message = f"member {member.member_id!r} is in generation {member.epoch}, not {generation}"
        raise IllegalGenerationError(message)
