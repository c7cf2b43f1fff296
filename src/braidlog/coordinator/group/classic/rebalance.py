"""How a classic group gets from one generation to the next, and how members are missed.

join deadline     the initial delay of a group without members, then the members' rebalance timeout: one that has not
                  joined again by then is out
sync deadline     a member that knows the generation and does not ask for its assignment within the rebalance
                  timeout is out
session deadline  a member that is silent for its session timeout is out; for the time of a member's waiting join or
                  sync it does not count, since its connection is muted
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from braidlog.coordinator.deadlines import Deadlines, GroupDeadline
from braidlog.coordinator.effects import Effects, Moment, Responder
from braidlog.coordinator.group.classic.group import COMPLETING, DEAD, EMPTY, PREPARING, STABLE, ClassicGroup
from braidlog.coordinator.group.classic.member import ClassicGroupMember
from braidlog.coordinator.group.classic.records import fits, store
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.core.protocol_errors import (
    ProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    UnknownServerError,
)
from braidlog.wire.generated.join_group import JoinGroupResponse, JoinGroupResponseMember
from braidlog.wire.generated.sync_group import SyncGroupResponse

# Kind, group, member.

SESSION: Final = "classic.session"
JOIN: Final = "classic.join"
SYNC: Final = "classic.sync"

# A new member does not know its id until its join is answered, so it cannot send heartbeats; if its client went away
# meanwhile, this is how long the group waits for it.
NEW_MEMBER_TIMEOUT_MS: Final = 300_000
# Between two looks for a member that could lead, where only silent static members are left.
SHORTEST_REPEAT_MS: Final = 1_000


class Rebalances:
    def __init__(self, deadlines: Deadlines[GroupDeadline], settings: Callable[[], GroupSettings]) -> None:
        self._deadlines = deadlines
        self._settings = settings

    # Sessions

    def touch(self, group: ClassicGroup, member: ClassicGroupMember, now: Moment) -> None:
        """The member is alive: its session starts anew."""
        self.set_session(group, member.member_id, member.session_timeout_ms, now)

    def set_session(self, group: ClassicGroup, member_id: str, timeout_ms: int, now: Moment) -> None:
        self._deadlines.set((SESSION, group.group_id, member_id), now.monotonic + timeout_ms / 1000)

    def end_session(self, group: ClassicGroup, member_id: str) -> None:
        self._deadlines.cancel((SESSION, group.group_id, member_id))

    def on_session_timeout(self, group: ClassicGroup, member_id: str, now: Moment, effects: Effects) -> None:
        if member_id in group.pending_joins:
            group.remove(member_id)
            self.maybe_complete_join(group, now, effects)
            return
        member = group.members.get(member_id)
        if member is None:
            return
        waits = member.join_responder is not None or member.sync_responder is not None
        if member.is_new or not waits:
            self.remove_member(group, member, effects)
            self.after_removal(group, now, effects)

    def remove_member(self, group: ClassicGroup, member: ClassicGroupMember, effects: Effects) -> None:
        """Take a member out; if it is still there after all, it hears that it must join anew."""
        gone = UnknownMemberIdError(f"member {member.member_id!r} is no longer in group {group.group_id!r}; join again")
        self.fail_waiting(group, member, gone, effects)
        self.end_session(group, member.member_id)
        group.remove(member.member_id)

    def after_removal(self, group: ClassicGroup, now: Moment, effects: Effects) -> None:
        if group.state in (STABLE, COMPLETING):
            self.prepare_rebalance(group, now, effects)
        else:
            self.maybe_complete_join(group, now, effects)

    # Preparing

    def prepare_rebalance_or_complete_join(self, group: ClassicGroup, now: Moment, effects: Effects) -> None:
        """A member joined: start a rebalance, or see whether that was the last one the running one waited for."""
        if group.state in (STABLE, COMPLETING, EMPTY):
            self.prepare_rebalance(group, now, effects)
        else:
            self.maybe_complete_join(group, now, effects)

    def prepare_rebalance(self, group: ClassicGroup, now: Moment, effects: Effects) -> None:
        if group.state == COMPLETING:
            error = RebalanceInProgressError(f"group {group.group_id!r} rebalances again; join again")
            self._reset_assignments(group, error, now, effects)
        self._deadlines.cancel((SYNC, group.group_id, ""))
        initial = group.state == EMPTY
        group.transition_to(PREPARING, now.wall_ms)
        if initial:
            # Give the others of a starting application time to join the first generation too (KIP-134).
            delay_ms = self._settings().initial_rebalance_delay_ms
            group.extend_delay = False
            group.delay_left_ms = max(group.rebalance_timeout_ms() - delay_ms, 0)
            self._set_join_deadline(group, delay_ms, now)
        elif group.has_all_members_joined():
            self._complete_join(group, now, effects)
        else:
            self._set_join_deadline(group, group.rebalance_timeout_ms(), now)

    def maybe_complete_join(self, group: ClassicGroup, now: Moment, effects: Effects) -> None:
        if group.state == PREPARING and not is_initial(group) and group.has_all_members_joined():
            self._complete_join(group, now, effects)

    def on_join_timeout(self, group: ClassicGroup, now: Moment, effects: Effects) -> None:
        if group.state != PREPARING:
            return
        if is_initial(group) and group.extend_delay and group.delay_left_ms > 0:
            delay_ms = min(self._settings().initial_rebalance_delay_ms, group.delay_left_ms)
            group.extend_delay = False
            group.delay_left_ms -= delay_ms
            self._set_join_deadline(group, delay_ms, now)
        else:
            self._complete_join(group, now, effects)

    def _set_join_deadline(self, group: ClassicGroup, delay_ms: int, now: Moment) -> None:
        self._deadlines.set((JOIN, group.group_id, ""), now.monotonic + max(delay_ms, 0) / 1000)

    # Completing

    def _complete_join(self, group: ClassicGroup, now: Moment, effects: Effects) -> None:
        """The generation begins, with those who joined in time."""
        self._deadlines.cancel((JOIN, group.group_id, ""))
        if group.num_awaiting_join < len(group.members):
            for member in [m for m in group.members.values() if m.join_responder is None and m.instance_id is None]:
                self.remove_member(group, member, effects)
        if group.members and not _elect_leader(group):
            # Only static members that did not join: they stay until their sessions end.
            self._set_join_deadline(group, max(group.rebalance_timeout_ms(), SHORTEST_REPEAT_MS), now)
            return
        group.begin_generation(now.wall_ms)
        if not group.members:
            store(group, effects)
            return
        for member in group.members.values():
            self.answer_join(group, member, effects, with_members=group.leader == member.member_id)
            self.touch(group, member, now)
            member.is_new = False
            group.pending_syncs[member.member_id] = None
        self._deadlines.set((SYNC, group.group_id, ""), now.monotonic + max(group.rebalance_timeout_ms(), 0) / 1000)

    def on_sync_timeout(self, group: ClassicGroup, now: Moment, effects: Effects) -> None:
        if group.state not in (COMPLETING, STABLE) or not group.pending_syncs:
            return
        for member_id in list(group.pending_syncs):
            self.remove_member(group, group.members[member_id], effects)
        self.prepare_rebalance(group, now, effects)

    def synced(self, group: ClassicGroup, member_id: str) -> None:
        group.pending_syncs.pop(member_id, None)
        if not group.pending_syncs:
            self._deadlines.cancel((SYNC, group.group_id, ""))

    def propagate_assignment(
        self, group: ClassicGroup, assignments: dict[str, bytes], now: Moment, effects: Effects
    ) -> None:
        """The leader has assigned: the generation is written down, and every member that asked gets its part."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
        if not self.fits(group):
            error = UnknownServerError(f"group {group.group_id!r} is too large to be written down")
            self._reset_assignments(group, error, now, effects)
            self.prepare_rebalance(group, now, effects)
            return
        group.transition_to(STABLE, now.wall_ms)
        store(group, effects)
        for member in group.members.values():
            self._answer_sync(group, member, sync_response(group, member), now, effects)

    def fits(self, group: ClassicGroup) -> bool:
        return fits(group, self._settings().max_batch_bytes)

    def _reset_assignments(self, group: ClassicGroup, error: ProtocolError, now: Moment, effects: Effects) -> None:
        for member in group.members.values():
            member.assignment = b""
            self._answer_sync(group, member, error, now, effects)

    def _answer_sync(
        self,
        group: ClassicGroup,
        member: ClassicGroupMember,
        answer: SyncGroupResponse | ProtocolError,
        now: Moment,
        effects: Effects,
    ) -> None:
        """While it waited its session did not count; from now on it does again."""
        responder = member.sync_responder
        if responder is not None:
            member.sync_responder = None
            effects.reply(responder, answer)
            self.touch(group, member, now)

    # Replies

    def wait_for_join(
        self, group: ClassicGroup, member: ClassicGroupMember, responder: Responder, effects: Effects
    ) -> None:
        """Keep the responder until the generation begins; one that the member sent before is not needed any more."""
        if member.join_responder is None:
            group.num_awaiting_join += 1
        else:
            effects.reply(member.join_responder, RebalanceInProgressError("the member sent a newer join"))
        member.join_responder = responder

    def answer_join(
        self,
        group: ClassicGroup,
        member: ClassicGroupMember,
        effects: Effects,
        *,
        with_members: bool = False,
        skip_assignment: bool = False,
        leader: str | None = None,
    ) -> None:
        responder = member.join_responder
        if responder is not None:
            member.join_responder = None
            group.num_awaiting_join -= 1
            answer = join_response(
                group, member, with_members=with_members, skip_assignment=skip_assignment, leader=leader
            )
            effects.reply(responder, answer)

    def fail_waiting(
        self, group: ClassicGroup, member: ClassicGroupMember, error: ProtocolError, effects: Effects
    ) -> None:
        if member.join_responder is not None:
            effects.reply(member.join_responder, error)
            member.join_responder = None
            group.num_awaiting_join -= 1
        if member.sync_responder is not None:
            effects.reply(member.sync_responder, error)
            member.sync_responder = None

    def dissolve(self, group: ClassicGroup, error: ProtocolError, effects: Effects, now_ms: int) -> None:
        """The group ends here (deleted, or it goes on under the consumer protocol): nothing waits, nothing is due."""
        for member in group.members.values():
            self.fail_waiting(group, member, error, effects)
            self.end_session(group, member.member_id)
        for member_id in group.pending_joins:
            self.end_session(group, member_id)
        self._deadlines.cancel((JOIN, group.group_id, ""))
        self._deadlines.cancel((SYNC, group.group_id, ""))
        if group.state != DEAD:
            group.transition_to(DEAD, now_ms)


def is_initial(group: ClassicGroup) -> bool:
    """In its initial delay: it had no members before."""
    return group.state == PREPARING and group.history[-1] == EMPTY


def _elect_leader(group: ClassicGroup) -> bool:
    """A leader that joined: the old one if it did."""
    leader = group.members.get(group.leader) if group.leader is not None else None
    if leader is not None and leader.join_responder is not None:
        return True
    for member in group.members.values():
        if member.join_responder is not None:
            group.leader = member.member_id
            return True
    return False


def join_response(
    group: ClassicGroup,
    member: ClassicGroupMember,
    *,
    with_members: bool = False,
    skip_assignment: bool = False,
    leader: str | None = None,
) -> JoinGroupResponse:
    members = []
    if with_members:
        members = [
            JoinGroupResponseMember(
                member_id=other.member_id,
                group_instance_id=other.instance_id,
                metadata=other.metadata_of(group.protocol_name),
            )
            for other in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name or "",
        leader=(group.leader if leader is None else leader) or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )


def sync_response(group: ClassicGroup, member: ClassicGroupMember) -> SyncGroupResponse:
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=member.assignment
    )
