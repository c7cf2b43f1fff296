"""JoinGroup: who may take part in the next generation, and who need not wait for it.

no id yet        dynamic  v4+: is given one, with which it has to join again (KIP-394); before: takes part at once
                 static   takes part, or takes the place of its instance's former member
an id            pending  takes part
                 member   takes part in a rebalance under way, or starts one if it leads or has changed; else it is
                          gets the current generation
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from braidlog.coordinator.effects import Caller, Effects, Moment, Responder
from braidlog.coordinator.group.classic.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, ClassicGroup
from braidlog.coordinator.group.classic.member import ClassicGroupMember, MemberProtocol
from braidlog.coordinator.group.classic.rebalance import NEW_MEMBER_TIMEOUT_MS, Rebalances, is_initial, join_response
from braidlog.coordinator.group.classic.records import store
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.core.protocol_errors import (
    FencedInstanceIdError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidRequestError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
)
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupResponse

# The first versions in which a client must come back with the id it was given, in which an answer may name no protocol,
# and in which a leader may be asked not to assign.
KNOWN_ID_FROM = 4
NO_PROTOCOL_IS_NULL_FROM = 7
SKIPS_ASSIGNMENT_FROM = 9

# Bytes: a member's id is a text of records and answers.
LONGEST_MEMBER_ID = 32767


def rebalance_timeout_of(request: JoinGroupRequest, version: int) -> int:
    """The first version of the request has none, and a negative one is none."""
    told_ms = request.rebalance_timeout_ms
    return told_ms if version >= 1 and told_ms >= 0 else request.session_timeout_ms


class JoinAttempt(NamedTuple):
    """One JoinGroup, with all that its decision needs."""

    request: JoinGroupRequest
    protocols: list[MemberProtocol]
    caller: Caller
    responder: Responder
    now: Moment
    effects: Effects

    def rebalance_timeout_ms(self) -> int:
        return rebalance_timeout_of(self.request, self.caller.version)


class JoinGroupRules:
    def __init__(
        self, rebalances: Rebalances, settings: Callable[[], GroupSettings], new_member_id: Callable[[], str]
    ) -> None:
        self._rebalances = rebalances
        self._settings = settings
        self._new_member_id = new_member_id

    def validate(self, request: JoinGroupRequest) -> None:
        """What must hold whatever the group is like."""
        settings = self._settings()
        least, most = settings.min_session_timeout_ms, settings.max_session_timeout_ms
        if not least <= request.session_timeout_ms <= most:
            message = f"session timeout {request.session_timeout_ms} ms is not within {least}…{most} ms"
            raise InvalidSessionTimeoutError(message)

    def join(self, group: ClassicGroup, attempt: JoinAttempt) -> None:
        group.validate_alive()
        request = attempt.request
        member_id = request.member_id
        if not self._accepts_joining_member(group, member_id):
            self._reject_join(group, member_id, attempt)
        elif not group.supports(request.protocol_type, attempt.protocols):
            names = [name for name, _ in attempt.protocols]
            raise InconsistentGroupProtocolError(f"{request.protocol_type!r} with {names} does not fit the group")
        elif not member_id:
            self._join_new_member(group, attempt)
        elif member_id in group.pending_joins and request.group_instance_id is None:
            self._add_member_and_rebalance(group, member_id, attempt)
        else:
            group.validate_member(member_id, request.group_instance_id)
            self._join_existing_member(group, group.members[member_id], attempt)

    # Room

    def _accepts_joining_member(self, group: ClassicGroup, member_id: str) -> bool:
        """Members that are in stay in, but of a group that became too large the last to join again are out."""
        most = self._settings().max_size
        if group.state in (EMPTY, DEAD):
            return True
        member = group.members.get(member_id)
        if group.state == PREPARING:
            return (member is not None and member.join_responder is not None) or group.num_awaiting_join < most
        return member is not None or len(group.members) < most

    def _reject_join(self, group: ClassicGroup, member_id: str, attempt: JoinAttempt) -> None:
        most = self._settings().max_size
        full = GroupMaxSizeReachedError(f"group {group.group_id!r} has its {most} members")
        attempt.effects.reply(attempt.responder, full)
        member = group.members.get(member_id)
        if member is not None:
            self._rebalances.remove_member(group, member, attempt.effects)
        elif member_id in group.pending_joins:
            self._rebalances.end_session(group, member_id)
            group.remove(member_id)
        self._rebalances.maybe_complete_join(group, attempt.now, attempt.effects)

    # Without an id

    def _join_new_member(self, group: ClassicGroup, attempt: JoinAttempt) -> None:
        request, caller = attempt.request, attempt.caller
        instance = request.group_instance_id
        member_id = f"{caller.client_id if instance is None else instance}-{self._new_member_id()}"
        if len(member_id.encode()) > LONGEST_MEMBER_ID:
            raise InvalidRequestError("the id of the client, or of the instance, is too long to be part of a member's")
        former = None if instance is None else group.static_members.get(instance)
        if former is not None:
            self._replace(group, group.members[former], member_id, attempt)
        elif instance is None and caller.version >= KNOWN_ID_FROM:
            group.pending_joins[member_id] = None
            self._rebalances.set_session(group, member_id, request.session_timeout_ms, attempt.now)
            attempt.effects.reply(attempt.responder, member_id_required(member_id, caller.version))
        else:
            self._add_member_and_rebalance(group, member_id, attempt)

    def _add_member_and_rebalance(self, group: ClassicGroup, member_id: str, attempt: JoinAttempt) -> None:
        request, caller = attempt.request, attempt.caller
        member = ClassicGroupMember(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.host,
            attempt.rebalance_timeout_ms(),
            request.session_timeout_ms,
            attempt.protocols,
        )
        member.is_new = True
        if not group.members:
            group.protocol_type = request.protocol_type
        if is_initial(group):
            group.extend_delay = True
        group.add(member)
        self._rebalances.wait_for_join(group, member, attempt.responder, attempt.effects)
        self._rebalances.set_session(group, member_id, NEW_MEMBER_TIMEOUT_MS, attempt.now)
        self._rebalances.prepare_rebalance_or_complete_join(group, attempt.now, attempt.effects)

    def _replace(self, group: ClassicGroup, former: ClassicGroupMember, member_id: str, attempt: JoinAttempt) -> None:
        """A static member restarted: in a stable group no other needs to notice (KIP-345)."""
        now, effects = attempt.now, attempt.effects
        leader_before = group.leader
        fenced = FencedInstanceIdError(f"a new member took the place of instance {former.instance_id!r}")
        self._rebalances.fail_waiting(group, former, fenced, effects)
        self._rebalances.end_session(group, former.member_id)
        member = group.replace_static(former, member_id)
        self._update(group, member, attempt)
        self._rebalances.touch(group, member, now)
        if group.state != STABLE or group.select_protocol() != group.protocol_name or not self._rebalances.fits(group):
            self._rebalances.prepare_rebalance_or_complete_join(group, now, effects)
            return
        store(group, effects)
        leads = group.leader == member_id
        if attempt.caller.version >= SKIPS_ASSIGNMENT_FROM:
            # It leads, but the group has its assignment already (KIP-814).
            self._rebalances.answer_join(group, member, effects, with_members=leads, skip_assignment=leads)
        else:
            # Named as the leader it would assign; with the former one's name it takes itself for a follower.
            self._rebalances.answer_join(group, member, effects, leader=leader_before)

    # With an id

    def _join_existing_member(self, group: ClassicGroup, member: ClassicGroupMember, attempt: JoinAttempt) -> None:
        leads = group.leader == member.member_id
        unchanged = member.protocols == attempt.protocols
        if group.state == COMPLETING and unchanged:
            # It may have missed the answer to its join.
            attempt.effects.reply(attempt.responder, join_response(group, member, with_members=leads))
        elif group.state == STABLE and unchanged and not leads:
            attempt.effects.reply(attempt.responder, join_response(group, member))
        else:
            # A leader that joins again wants to assign anew, whatever its reason.
            self._update(group, member, attempt)
            self._rebalances.prepare_rebalance_or_complete_join(group, attempt.now, attempt.effects)

    def _update(self, group: ClassicGroup, member: ClassicGroupMember, attempt: JoinAttempt) -> None:
        group.set_protocols(member, attempt.protocols)
        member.rebalance_timeout_ms = attempt.rebalance_timeout_ms()
        member.session_timeout_ms = attempt.request.session_timeout_ms
        self._rebalances.wait_for_join(group, member, attempt.responder, attempt.effects)


def member_id_required(member_id: str, version: int) -> JoinGroupResponse:
    """Not in yet: the id was only given (KIP-394)."""
    return JoinGroupResponse(
        error_code=MemberIdRequiredError.code,
        protocol_name=None if version >= NO_PROTOCOL_IS_NULL_FROM else "",
        member_id=member_id,
    )
