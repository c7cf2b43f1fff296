"""The classic protocol as one member sees it: answers in, what to do next out; no I/O, no clock, no user code.

    OUT → JOINING → (ASSIGNING, if it leads) → SYNCING → TAKING → STABLE → JOINING …

The shell asks for requests, brings answers, and does as the returned `Next` says. A move back to OUT means that the
coordinator no longer knows the member under its old generation: what it had is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum
from typing import Final

from braidlog.client.consumer.membership.identity import NO_GENERATION, Identity
from braidlog.client.consumer.membership.refused import fenced, refused
from braidlog.client.consumer.membership.states import CLASSIC_MOVES, Classic, Track
from braidlog.core.protocol_errors import (
    NONE,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    IllegalGenerationError,
    MemberIdRequiredError,
    NotCoordinatorError,
    ProtocolError,
    RebalanceInProgressError,
    UnknownMemberIdError,
    name_of,
)
from braidlog.wire.generated.heartbeat import HeartbeatRequest
from braidlog.wire.generated.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from braidlog.wire.generated.leave_group import LeaveGroupRequest, MemberIdentity
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

log = logging.getLogger("braidlog.client.group")

PROTOCOL_TYPE: Final = "consumer"
# Reasons travel in requests (KIP-800) and end up in brokers' logs.
LONGEST_REASON: Final = 255
_BATCHED_LEAVE: Final = 3
_UNREACHABLE: Final = (CoordinatorNotAvailableError.code, NotCoordinatorError.code)


class Next(Enum):
    GO_ON = "the answer was good"
    AT_ONCE = "send the same again"
    LATER = "send the same again after a pause"
    ELSEWHERE = "look the coordinator up, then send the same again after a pause"
    REJOIN = "the group begins another rebalance: join that"
    RESET = "the coordinator forgot this member: everything it had is lost, and it may join anew"


class ClassicMember:
    def __init__(self, group_id: str, instance_id: str | None, session_ms: int, rebalance_ms: int) -> None:
        self.group_id = group_id
        self.instance_id = instance_id
        self.generation = NO_GENERATION
        self.member_id = ""
        # The assignor that the group chose.
        self.protocol = ""
        self.leads = False
        # Why to join (again); none while all is well.
        self.rejoin: str | None = "it is not in the group yet"
        self._session_ms = session_ms
        self._rebalance_ms = rebalance_ms
        self._track = Track(f"member of group {group_id}", CLASSIC_MOVES, Classic.OUT)

    @property
    def state(self) -> Classic:
        return self._track.state

    def is_in(self, state: Classic) -> bool:
        return self._track.state is state

    @property
    def identity(self) -> Identity:
        return Identity(self.generation, self.member_id, self.instance_id)

    @property
    def is_known(self) -> bool:
        """Whether the coordinator has given this member a generation that it has not taken back."""
        return self.generation != NO_GENERATION

    def want_rejoin(self, reason: str) -> None:
        if self.rejoin is None:
            self.rejoin = reason
            log.info("group %s: member %s will join again: %s", self.group_id, self.member_id, reason)

    # Joining

    def begin_join(self) -> None:
        self._track.move(Classic.JOINING)

    def join_request(self, offers: Sequence[tuple[str, bytes]]) -> JoinGroupRequest:
        """`offers`: what this member says under each assignor that it knows, best first."""
        return JoinGroupRequest(
            group_id=self.group_id,
            session_timeout_ms=self._session_ms,
            rebalance_timeout_ms=self._rebalance_ms,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=subscription) for name, subscription in offers],
            reason=(self.rejoin or "")[:LONGEST_REASON],
        )

    def on_join(self, answer: JoinGroupResponse) -> Next:
        code = answer.error_code
        if code == NONE:
            self.generation = answer.generation_id
            self.member_id = answer.member_id
            self.protocol = answer.protocol_name or ""
            self.leads = answer.leader == answer.member_id
            self.rejoin = None
            self._track.move(Classic.ASSIGNING if self.leads and not answer.skip_assignment else Classic.SYNCING)
            return Next.GO_ON
        if code == MemberIdRequiredError.code:
            self.member_id = answer.member_id
            return Next.AT_ONCE
        if code in _UNREACHABLE:
            return Next.ELSEWHERE
        if code in (CoordinatorLoadInProgressError.code, RebalanceInProgressError.code):
            return Next.LATER
        if code == UnknownMemberIdError.code:
            return self.reset("the coordinator does not know it", forget_id=True)
        raise self._failure(code, "join")

    # Syncing

    def shares_are_out(self) -> None:
        self._track.move(Classic.SYNCING)

    def sync_request(self, shares: Sequence[tuple[str, bytes]]) -> SyncGroupRequest:
        """`shares`: by member, of the leader alone."""
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.protocol,
            assignments=[SyncGroupRequestAssignment(member_id=name, assignment=share) for name, share in shares],
        )

    def on_sync(self, answer: SyncGroupResponse) -> Next:
        code = answer.error_code
        if code == NONE:
            self._track.move(Classic.TAKING)
            return Next.GO_ON
        self.want_rejoin(f"its share was refused with {name_of(code)}")
        self._track.move(Classic.JOINING)
        if code == RebalanceInProgressError.code:
            return Next.REJOIN
        if code in _UNREACHABLE:
            return Next.ELSEWHERE
        if code == CoordinatorLoadInProgressError.code:
            return Next.LATER
        if code in (UnknownMemberIdError.code, IllegalGenerationError.code):
            return self.reset(f"sync was refused with {name_of(code)}", forget_id=code == UnknownMemberIdError.code)
        raise self._failure(code, "sync")

    def no_answer(self) -> None:
        """A join or sync was lost on the way: begin again with the join."""
        self._track.move(Classic.JOINING)

    def taken(self) -> None:
        """The program's thread has taken the share."""
        self._track.move(Classic.STABLE)

    # Being heard of

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def on_refusal(self, sent: Identity, code: int) -> Next:
        """A heartbeat or a commit, sent as `sent`, was answered with an error."""
        if code in _UNREACHABLE:
            return Next.ELSEWHERE
        if code == RebalanceInProgressError.code:
            if self.state in (Classic.STABLE, Classic.TAKING):
                self.want_rejoin("the group is rebalancing")
            return Next.REJOIN
        if code in (UnknownMemberIdError.code, IllegalGenerationError.code, FencedInstanceIdError.code):
            if sent != self.identity or self.state is Classic.JOINING:
                # Meanwhile it has joined again, or is about to: the answer speaks of a life that is over anyway.
                return Next.GO_ON
            if code == FencedInstanceIdError.code:
                self.reset("another member has its instance id", forget_id=True)
                raise fenced(self.group_id, self.instance_id)
            return self.reset(f"it was refused with {name_of(code)}", forget_id=code == UnknownMemberIdError.code)
        if code == CoordinatorLoadInProgressError.code:
            return Next.LATER
        raise self._failure(code, "heartbeat")

    # Leaving

    def leave_request(self, version: int, reason: str) -> LeaveGroupRequest:
        if version < _BATCHED_LEAVE:
            return LeaveGroupRequest(group_id=self.group_id, member_id=self.member_id)
        leaving = MemberIdentity(member_id=self.member_id, reason=reason[:LONGEST_REASON])
        return LeaveGroupRequest(group_id=self.group_id, members=[leaving])

    @property
    def says_goodbye(self) -> bool:
        """Static members do not: they may be back before their session is over (KIP-345)."""
        return self.instance_id is None and self.member_id != ""

    def reset(self, why: str, *, forget_id: bool) -> Next:
        """Out of the group: whatever it had is lost."""
        if self.is_known:
            log.info("group %s: member %s is out of it: %s", self.group_id, self.member_id, why)
        self.generation = NO_GENERATION
        self.protocol = ""
        self.leads = False
        if forget_id:
            self.member_id = ""
        self._track.move(Classic.OUT)
        self.rejoin = why
        return Next.RESET

    def _failure(self, code: int, what: str) -> ProtocolError:
        if code == FencedInstanceIdError.code:
            self.reset("another member has its instance id", forget_id=True)
            return fenced(self.group_id, self.instance_id)
        self.reset(f"{what} was refused with {name_of(code)}", forget_id=False)
        return refused(code, self.group_id)
