"""The states of a member, of either protocol, and the moves between them; any other move is a bug."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final, Generic, TypeVar


class ClassicMemberState(Enum):
    # Not in a generation: nothing can be committed, heartbeats rest. A join may be on its way to JOINING.
    UNJOINED = "out of the group"
    # JoinGroup is under way; partitions may still be owned (cooperative), but nothing can be committed.
    JOINING = "joining"
    # The group waits for our shares: we lead it.
    ASSIGNING = "sharing out"
    # SyncGroup is under way.
    SYNCING = "waiting for its share"
    # Has a share that the program's thread has yet to take.
    ASSIGNED = "taking its share"
    # In a generation, with everything called back.
    STABLE = "stable"


CLASSIC_MEMBER_TRANSITIONS: Final[dict[ClassicMemberState, tuple[ClassicMemberState, ...]]] = {
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


class ConsumerMemberState(Enum):
    # Nothing is said to the coordinator.
    UNJOINED = "out of the group"
    # The first heartbeat of a life, epoch 0, is to be sent or under way.
    JOINING = "joining"
    # Has an epoch, and what the coordinator wants us to have is what we said we have.
    STABLE = "stable"
    # The coordinator wants us to have something else: the program's thread has to give up and take.
    RECONCILING = "reconciling"
    # That is done; the next heartbeat tells it.
    ACKNOWLEDGING = "telling what it has"
    # The coordinator does not know us any more: the program's thread has to let go of everything, then we join again.
    FENCED = "fenced"
    # As FENCED, but we left ourselves because the program did not poll.
    STALE = "left for not polling"


CONSUMER_MEMBER_TRANSITIONS: Final[dict[ConsumerMemberState, tuple[ConsumerMemberState, ...]]] = {
    ConsumerMemberState.UNJOINED: (ConsumerMemberState.JOINING, ConsumerMemberState.UNJOINED),
    ConsumerMemberState.JOINING: (
        ConsumerMemberState.STABLE,
        ConsumerMemberState.RECONCILING,
        ConsumerMemberState.FENCED,
        ConsumerMemberState.STALE,
        ConsumerMemberState.UNJOINED,
    ),
    ConsumerMemberState.STABLE: (
        ConsumerMemberState.RECONCILING,
        ConsumerMemberState.ACKNOWLEDGING,
        ConsumerMemberState.FENCED,
        ConsumerMemberState.STALE,
        ConsumerMemberState.UNJOINED,
    ),
    ConsumerMemberState.RECONCILING: (
        ConsumerMemberState.ACKNOWLEDGING,
        ConsumerMemberState.STABLE,
        ConsumerMemberState.FENCED,
        ConsumerMemberState.STALE,
        ConsumerMemberState.UNJOINED,
    ),
    ConsumerMemberState.ACKNOWLEDGING: (
        ConsumerMemberState.STABLE,
        ConsumerMemberState.RECONCILING,
        ConsumerMemberState.FENCED,
        ConsumerMemberState.STALE,
        ConsumerMemberState.UNJOINED,
    ),
    ConsumerMemberState.FENCED: (ConsumerMemberState.JOINING, ConsumerMemberState.UNJOINED),
    ConsumerMemberState.STALE: (ConsumerMemberState.JOINING, ConsumerMemberState.UNJOINED),
}

S = TypeVar("S", bound=Enum)
_REMEMBERED: Final = 12


class MemberStateMachine(Generic[S]):
    """A member's state and how it came there."""

    def __init__(self, who: str, moves: dict[S, tuple[S, ...]], state: S) -> None:
        self._who = who
        self._moves = moves
        self.state = state
        self._history: deque[str] = deque([state.name], maxlen=_REMEMBERED)

    def move(self, state: S) -> None:
        if state not in self._moves[self.state]:
            raise RuntimeError(
                f"{self._who} cannot go from {self.state.name} to {state.name}; it came by {', '.join(self._history)}"
            )
        if state is not self.state:
            self._history.append(state.name)
        self.state = state
