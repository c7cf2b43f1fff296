"""The classic protocol as one member sees it: answers in, what to do next out; no I/O, no clock, no user code.

    UNJOINED → JOINING → (ASSIGNING, if it leads) → SYNCING → ASSIGNED → STABLE → JOINING …

The caller asks for requests, brings answers, and does as the returned `NextStep` says. A move back to UNJOINED means
that the coordinator no longer knows the member under its old generation: what it had is lost.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from enum import Enum
from typing import Final

from braidlog.client.consumer.group.member import (
    NO_GENERATION,
    GroupIdentity,
    MemberStateMachine,
    fenced_instance_error,
    group_error,
)
from braidlog.client.requests.leave_group import LONGEST_REASON, LeavingMember, leave_group_requests
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
from braidlog.wire.generated.leave_group import LeaveGroupRequest
from braidlog.wire.generated.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

log = logging.getLogger("braidlog.client.group")

PROTOCOL_TYPE: Final = "consumer"
_UNREACHABLE: Final = (CoordinatorNotAvailableError.code, NotCoordinatorError.code)


class ClassicMemberState(Enum):
    # Not in a generation: nothing can be committed, heartbeats rest. A join may be on its way to JOINING.
    UNJOINED = "out of the group"
    # JoinGroup is under way; partitions may still be owned (cooperative), but nothing can be committed.
    JOINING = "joining"
    # The group waits for our assignments: we lead it.
    ASSIGNING = "assigning"
    # SyncGroup is under way.
    SYNCING = "waiting for its assignment"
    # Has an assignment that the program's thread has yet to take.
    ASSIGNED = "taking its assignment"
    # In a generation, with all listeners called.
    STABLE = "stable"


_TRANSITIONS: Final[dict[ClassicMemberState, tuple[ClassicMemberState, ...]]] = {
    ClassicMemberState.UNJOINED: (ClassicMemberState.JOINING, ClassicMemberState.UNJOINED),
    ClassicMemberState.JOINING: (
        ClassicMemberState.JOINING,
        ClassicMemberState.ASSIGNING,
        ClassicMemberState.SYNCING,
        ClassicMemberState.UNJOINED,
    ),
    ClassicMemberState.ASSIGNING: (ClassicMemberState.SYNCING, ClassicMemberState.JOINING, ClassicMemberState.UNJOINED),
    ClassicMemberState.SYNCING: (ClassicMemberState.ASSIGNED, ClassicMemberState.JOINING, ClassicMemberState.UNJOINED),
    ClassicMemberState.ASSIGNED: (ClassicMemberState.STABLE, ClassicMemberState.JOINING, ClassicMemberState.UNJOINED),
    ClassicMemberState.STABLE: (ClassicMemberState.JOINING, ClassicMemberState.UNJOINED),
}


class NextStep(Enum):
    DONE = "the answer was good"
    RETRY = "send the same again"
    RETRY_LATER = "send the same again after a pause"
    FIND_COORDINATOR = "look the coordinator up, then send the same again after a pause"
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
        self._machine = MemberStateMachine(f"member of group {group_id}", _TRANSITIONS, ClassicMemberState.UNJOINED)

    @property
    def state(self) -> ClassicMemberState:
        return self._machine.state

    def is_in(self, state: ClassicMemberState) -> bool:
        return self._machine.state is state

    @property
    def identity(self) -> GroupIdentity:
        return GroupIdentity(self.generation, self.member_id, self.instance_id)

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
        self._machine.move(ClassicMemberState.JOINING)

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

    def on_join(self, answer: JoinGroupResponse) -> NextStep:
        code = answer.error_code
        if code == NONE:
            self.generation = answer.generation_id
            self.member_id = answer.member_id
            self.protocol = answer.protocol_name or ""
            self.leads = answer.leader == answer.member_id
            self.rejoin = None
            self._machine.move(
                ClassicMemberState.ASSIGNING
                if self.leads and not answer.skip_assignment
                else ClassicMemberState.SYNCING
            )
            return NextStep.DONE
        if code == MemberIdRequiredError.code:
            self.member_id = answer.member_id
            return NextStep.RETRY
        if code in _UNREACHABLE:
            return NextStep.FIND_COORDINATOR
        if code in (CoordinatorLoadInProgressError.code, RebalanceInProgressError.code):
            return NextStep.RETRY_LATER
        if code == UnknownMemberIdError.code:
            return self.reset("the coordinator does not know it", forget_id=True)
        raise self._failure(code, "join")

    # Syncing

    def assignment_done(self) -> None:
        self._machine.move(ClassicMemberState.SYNCING)

    def sync_request(self, assignments: Sequence[tuple[str, bytes]]) -> SyncGroupRequest:
        """`assignments`: by member, from the leader alone."""
        return SyncGroupRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self.protocol,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=assignment) for name, assignment in assignments
            ],
        )

    def on_sync(self, answer: SyncGroupResponse) -> NextStep:
        code = answer.error_code
        if code == NONE:
            self._machine.move(ClassicMemberState.ASSIGNED)
            return NextStep.DONE
        self.want_rejoin(f"its sync was refused with {name_of(code)}")
        self._machine.move(ClassicMemberState.JOINING)
        if code == RebalanceInProgressError.code:
            return NextStep.REJOIN
        if code in _UNREACHABLE:
            return NextStep.FIND_COORDINATOR
        if code == CoordinatorLoadInProgressError.code:
            return NextStep.RETRY_LATER
        if code in (UnknownMemberIdError.code, IllegalGenerationError.code):
            return self.reset(f"sync was refused with {name_of(code)}", forget_id=code == UnknownMemberIdError.code)
        raise self._failure(code, "sync")

    def no_answer(self) -> None:
        """A join or sync was lost on the way: begin again with the join."""
        self._machine.move(ClassicMemberState.JOINING)

    def taken(self) -> None:
        """The program's thread has taken the assignment."""
        self._machine.move(ClassicMemberState.STABLE)

    # Heartbeats

    def heartbeat_request(self) -> HeartbeatRequest:
        return HeartbeatRequest(
            group_id=self.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.instance_id,
        )

    def on_refusal(self, sent: GroupIdentity, code: int) -> NextStep:
        """A heartbeat or a commit, sent as `sent`, was answered with an error."""
        if code in _UNREACHABLE:
            return NextStep.FIND_COORDINATOR
        if code == RebalanceInProgressError.code:
            if self.state in (ClassicMemberState.STABLE, ClassicMemberState.ASSIGNED):
                self.want_rejoin("the group is rebalancing")
            return NextStep.REJOIN
        if code in (UnknownMemberIdError.code, IllegalGenerationError.code, FencedInstanceIdError.code):
            if sent != self.identity or self.state is ClassicMemberState.JOINING:
                # Meanwhile it has joined again, or is about to: the answer is about an earlier generation.
                return NextStep.DONE
            if code == FencedInstanceIdError.code:
                self.reset("another member has its instance id", forget_id=True)
                raise fenced_instance_error(self.group_id, self.instance_id)
            return self.reset(f"it was refused with {name_of(code)}", forget_id=code == UnknownMemberIdError.code)
        if code == CoordinatorLoadInProgressError.code:
            return NextStep.RETRY_LATER
        raise self._failure(code, "heartbeat")

    # Leaving

    def leave_request(self, version: int, reason: str) -> LeaveGroupRequest:
        (request,) = leave_group_requests(version, self.group_id, [LeavingMember(self.member_id)], reason)
        return request

    @property
    def sends_leave(self) -> bool:
        """Static members do not: they may be back before their session is over (KIP-345)."""
        return self.instance_id is None and self.member_id != ""

    def reset(self, why: str, *, forget_id: bool) -> NextStep:
        """Out of the group: whatever it had is lost."""
        if self.is_known:
            log.info("group %s: member %s is out of it: %s", self.group_id, self.member_id, why)
        self.generation = NO_GENERATION
        self.protocol = ""
        self.leads = False
        if forget_id:
            self.member_id = ""
        self._machine.move(ClassicMemberState.UNJOINED)
        self.rejoin = why
        return NextStep.RESET

    def _failure(self, code: int, what: str) -> ProtocolError:
        if code == FencedInstanceIdError.code:
            self.reset("another member has its instance id", forget_id=True)
            return fenced_instance_error(self.group_id, self.instance_id)
        self.reset(f"{what} was refused with {name_of(code)}", forget_id=False)
        return group_error(code, self.group_id)
