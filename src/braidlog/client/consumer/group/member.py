"""What a member of a group has, whichever protocol it speaks: its identity, its state, and its errors. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Final, Generic, TypeVar

from braidlog.client.broker_errors import broker_error
from braidlog.client.errors import CommitFailedError
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import FencedInstanceIdError, ProtocolError, RebalanceInProgressError, name_of

NO_GENERATION: Final = -1

S = TypeVar("S", bound=Enum)
_REMEMBERED: Final = 12


@dataclass(frozen=True, slots=True)
class GroupIdentity:
    # In the consumer protocol: the member epoch.
    generation: int = NO_GENERATION
    member_id: str = ""
    instance_id: str | None = None
    # Members of the consumer protocol say who they are when they fetch offsets, too.
    uses_consumer_protocol: bool = False

    @property
    def is_member(self) -> bool:
        return self.generation > NO_GENERATION


# A consumer that assigns partitions to itself, and only keeps its offsets in the group.
NO_MEMBER: Final = GroupIdentity()


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


# Errors

_ADVICE: Final[dict[int, str]] = {
    errors.InconsistentGroupProtocolError.code: "its members know no assignor in common, or use the group for "
    "something else than consuming; give all of them one assignor (partition.assignment.strategy), or choose another "
    "group.id",
    errors.InvalidSessionTimeoutError.code: "the broker does not allow this session.timeout.ms; stay between its "
    "group.min.session.timeout.ms and group.max.session.timeout.ms",
    errors.GroupMaxSizeReachedError.code: "it has as many members as the broker allows (group.max.size)",
    errors.UnreleasedInstanceIdError.code: "another member has this group.instance.id and has not left yet; wait until "
    "its session is over, or give this one another",
    errors.UnsupportedAssignorError.code: "the broker has no such assignor; choose another group.remote.assignor, or "
    "leave the choice to the broker",
    errors.InvalidRegularExpressionError.code: "the broker does not understand the pattern",
    errors.UnsupportedVersionError.code: "the broker does not speak this group protocol; use group.protocol=classic",
}


def group_error(code: int, group_id: str, message: str | None = None) -> ProtocolError:
    return broker_error(code, f"group {group_id}", message or _ADVICE.get(code))


def fenced_instance_error(group_id: str, instance_id: str | None) -> FencedInstanceIdError:
    return FencedInstanceIdError(
        f"group {group_id}: another member has come with group.instance.id {instance_id!r} and taken this one's place; "
        "stop one of the two, or give each its own. This consumer has to be closed"
    )


def commit_error(group_id: str, code: int) -> Exception:
    """For a program whose commit came too late for its generation."""
    if code == RebalanceInProgressError.code:
        return RebalanceInProgressError(
            f"group {group_id}: not committed, since the group is rebalancing; call poll() until that is over, then "
            "commit again what is still assigned"
        )
    return CommitFailedError(
        f"group {group_id}: not committed ({name_of(code)}), since the group went on without this member: its "
        "partitions were given to others, who read again what was not committed. That happens when poll() is not "
        "called within max.poll.interval.ms, or no heartbeat gets through within session.timeout.ms: handle fewer "
        "records at a time (max.poll.records), or allow more time"
    )
