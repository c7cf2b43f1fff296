"""The states of a replica as the controller sees them, and which may follow which.

Only replicas of topics that are being deleted are kept with their state (`plan.Deletion`): for all others it follows
from the live brokers, the failed data directories and the partition's own state.
"""

from __future__ import annotations

from enum import Enum
from itertools import pairwise
from typing import Final

from braidlog.core.errors import BraidlogError
from braidlog.core.types import BrokerId, TopicPartition


class ReplicaState(Enum):
    NON_EXISTENT = "NonExistentReplica"
    # Assigned, but its broker has not been told yet, or has not caught up: it may get an empty log.
    NEW = "NewReplica"
    ONLINE = "OnlineReplica"
    # Its broker or data directory is gone, or it was told to stop.
    OFFLINE = "OfflineReplica"
    # Told to delete its log; no answer yet.
    DELETION_STARTED = "ReplicaDeletionStarted"
    DELETION_SUCCESSFUL = "ReplicaDeletionSuccessful"
    # Its broker is gone or could not delete the log: tried again when a broker with that id starts.
    DELETION_INELIGIBLE = "ReplicaDeletionIneligible"


_STATE = ReplicaState

# Each state, and those that a replica may come from.
LEGAL_MOVES: Final[dict[ReplicaState, frozenset[ReplicaState]]] = {
    _STATE.NEW: frozenset({_STATE.NON_EXISTENT}),
    _STATE.ONLINE: frozenset({_STATE.NEW, _STATE.ONLINE, _STATE.OFFLINE, _STATE.DELETION_INELIGIBLE}),
    _STATE.OFFLINE: frozenset({_STATE.NEW, _STATE.ONLINE, _STATE.OFFLINE, _STATE.DELETION_INELIGIBLE}),
    _STATE.DELETION_STARTED: frozenset({_STATE.OFFLINE}),
    _STATE.DELETION_SUCCESSFUL: frozenset({_STATE.DELETION_STARTED}),
    _STATE.DELETION_INELIGIBLE: frozenset({_STATE.OFFLINE, _STATE.DELETION_STARTED}),
    _STATE.NON_EXISTENT: frozenset({_STATE.DELETION_SUCCESSFUL}),
}


class IllegalMoveError(BraidlogError):
    """A bug: what was decided does not fit what is known."""


def move(where: TopicPartition, broker: BrokerId, *states: ReplicaState) -> ReplicaState:
    """The last of these states, if each may follow the one before it."""
    for before, after in pairwise(states):
        if before not in LEGAL_MOVES[after]:
            history = " -> ".join(state.value for state in states)
            raise IllegalMoveError(
                f"the replica of {where} on broker {broker} cannot go from {before.value} to {after.value} ({history})"
            )
    return states[-1]
