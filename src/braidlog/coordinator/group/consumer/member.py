"""A member of a group that the broker assigns: what it says about itself, and how far it has come to its target.

Both halves are values. An operation derives new ones and writes them down; replaying what was written puts them into
the group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from braidlog.coordinator.group.classic.member import MemberProtocol
from braidlog.core.protocol_errors import FencedMemberEpochError, UnreleasedInstanceIdError

# Partitions by topic id; no topic without partitions. Shared between values, so never changed in place.
Assignment = Mapping[bytes, frozenset[int]]

NO_PARTITIONS: Final[Assignment] = {}

# What a member says, or the group notes, in the place of an epoch.
JOINING: Final = 0
LEFT: Final = -1
# A static member that went and may come back within its session: it keeps what it was assigned.
AWAY: Final = -2

# States of a member, as numbers of the CurrentMemberAssignment record.
#
# It has what the epoch it is in gives it. Moves on when the target's epoch is another one.
STABLE: Final = 0
# It must give partitions up and has not said yet that it did; until then it stays in its epoch.
UNREVOKED: Final = 1
# It is in the target's epoch, but some of its partitions are still with their former owners.
UNRELEASED: Final = 2
# Written by a version that knows more states: the member has to give up everything and join again.
UNKNOWN: Final = 127
STATES: Final = (STABLE, UNREVOKED, UNRELEASED)


class ClassicMemberMetadata(NamedTuple):
    """What is kept of a member that still speaks the classic protocol, so that the group can be turned back."""

    session_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """What a member says about itself (ConsumerGroupMemberMetadata)."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    # In order, each once.
    topics: tuple[str, ...] = ()
    # Empty for none.
    regex: str = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMemberMetadata | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a member has come (ConsumerGroupCurrentMemberAssignment)."""

    epoch: int = JOINING
    # The epoch before: a member that missed a response still comes with it.
    previous_epoch: int = -1
    state: int = STABLE
    # What it may own. Invariant over a group: a partition is in `assigned` or `revoking` of one member at most.
    assigned: Assignment = field(default_factory=dict)
    # What it has to give up and may still own.
    revoking: Assignment = field(default_factory=dict)

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state == STABLE and self.epoch == epoch


NEW_PROFILE: Final = Profile()
NEW_PROGRESS: Final = Progress()


class ConsumerGroupMember(NamedTuple):
    member_id: str
    profile: Profile
    progress: Progress

    @property
    def epoch(self) -> int:
        return self.progress.epoch

    @property
    def is_classic(self) -> bool:
        return self.profile.classic is not None

    def validate_epoch(self, epoch: int, owned: Assignment | None) -> None:
        """A member that missed a response comes with the epoch before, and owns no more than the group thinks."""
        if epoch == self.epoch:
            return
        missed = epoch < self.epoch and epoch == self.progress.previous_epoch
        if missed and owned is not None and holds_all(self.progress.assigned, owned):
            return
        less = "less" if epoch < self.epoch else "more"
        raise FencedMemberEpochError(
            f"member {self.member_id!r} is in epoch {self.epoch}, it says {epoch}, {less} than that: "
            "give up all partitions and join again"
        )

    def require_released(self, member_id: str) -> None:
        """An instance can be taken over once its member said that it goes for a while."""
        if self.epoch != AWAY:
            raise UnreleasedInstanceIdError(
                f"member {member_id!r} cannot join: instance {self.profile.instance_id!r} belongs to member "
                f"{self.member_id!r}"
            )


def in_order(assignment: Assignment) -> list[tuple[bytes, list[int]]]:
    """For records and responses: the same partitions always look the same."""
    return [(topic_id, sorted(assignment[topic_id])) for topic_id in sorted(assignment)]


def partitions_of(entries: Iterable[tuple[bytes, Iterable[int]]]) -> dict[bytes, frozenset[int]]:
    """From what was read or asked, where a topic may come twice, or without partitions."""
    found: dict[bytes, frozenset[int]] = {}
    for topic_id, partitions in entries:
        numbers = frozenset(partitions)
        if numbers:
            before = found.get(topic_id)
            found[topic_id] = numbers if before is None else before | numbers
    return found


def holds_all(assignment: Assignment, part: Assignment) -> bool:
    return all(partitions <= assignment.get(topic_id, frozenset()) for topic_id, partitions in part.items())
