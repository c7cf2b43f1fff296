"""The states of a member, of either protocol, and the moves between them; any other move is a bug."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final, Generic, TypeVar


class Classic(Enum):
    # Not in a generation: nothing can be committed, heartbeats rest. A join may be on its way to JOINING.
    OUT = "out of the group"
    # JoinGroup is under way; partitions may still be owned (cooperative), but nothing can be committed.
    JOINING = "joining"
    # The group waits for our shares: we lead it.
    ASSIGNING = "sharing out"
    # SyncGroup is under way.
    SYNCING = "waiting for its share"
    # Has a share that the program's thread has yet to take.
    TAKING = "taking its share"
    # In a generation, with everything called back.
    STABLE = "stable"


CLASSIC_MOVES: Final[dict[Classic, tuple[Classic, ...]]] = {
    Classic.OUT: (Classic.JOINING, Classic.OUT),
    Classic.JOINING: (Classic.JOINING, Classic.ASSIGNING, Classic.SYNCING, Classic.OUT),
    Classic.ASSIGNING: (Classic.SYNCING, Classic.JOINING, Classic.OUT),
    Classic.SYNCING: (Classic.TAKING, Classic.JOINING, Classic.OUT),
    Classic.TAKING: (Classic.STABLE, Classic.JOINING, Classic.OUT),
    Classic.STABLE: (Classic.JOINING, Classic.OUT),
}


class Newer(Enum):
    # Nothing is said to the coordinator.
    OUT = "out of the group"
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


NEWER_MOVES: Final[dict[Newer, tuple[Newer, ...]]] = {
    Newer.OUT: (Newer.JOINING, Newer.OUT),
    Newer.JOINING: (Newer.STABLE, Newer.RECONCILING, Newer.FENCED, Newer.STALE, Newer.OUT),
    Newer.STABLE: (Newer.RECONCILING, Newer.ACKNOWLEDGING, Newer.FENCED, Newer.STALE, Newer.OUT),
    Newer.RECONCILING: (Newer.ACKNOWLEDGING, Newer.STABLE, Newer.FENCED, Newer.STALE, Newer.OUT),
    Newer.ACKNOWLEDGING: (Newer.STABLE, Newer.RECONCILING, Newer.FENCED, Newer.STALE, Newer.OUT),
    Newer.FENCED: (Newer.JOINING, Newer.OUT),
    Newer.STALE: (Newer.JOINING, Newer.OUT),
}

S = TypeVar("S", bound=Enum)
_REMEMBERED: Final = 12


class Track(Generic[S]):
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
