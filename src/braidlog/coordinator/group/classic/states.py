"""The states of a classic group, and the only moves between them."""

from __future__ import annotations

from typing import Final, Literal

State = Literal["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]

# No members, perhaps offsets. A join starts a rebalance; simple commits are taken; it may be deleted.
EMPTY: Final = "Empty"
# Members are asked to join again: heartbeats hear REBALANCE_IN_PROGRESS, joins are kept until everybody has joined or
# time is up, syncs are refused.
PREPARING: Final = "PreparingRebalance"
# The generation is fixed and told to everybody; syncs are kept until the leader's brings the assignment.
COMPLETING: Final = "CompletingRebalance"
# Everybody has, or can have, an assignment: syncs are answered at once.
STABLE: Final = "Stable"
# Gone: whoever still holds it is told that the coordinator is not available, and looks for the group anew.
DEAD: Final = "Dead"

# From each state to those that may follow.
TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    EMPTY: frozenset({PREPARING, DEAD}),
    PREPARING: frozenset({COMPLETING, EMPTY, DEAD}),
    COMPLETING: frozenset({STABLE, PREPARING, DEAD}),
    STABLE: frozenset({PREPARING, DEAD}),
    DEAD: frozenset(),
}


class IllegalGroupTransitionError(Exception):
    """A bug: a group was to go where its state does not lead."""

    def __init__(self, group_id: str, state: State, to: State, history: list[State]) -> None:
        path = " → ".join([*history, state])
        super().__init__(f"group {group_id!r} cannot go from {state} to {to} (was {path})")
