"""A classic group: members, leader, generation, and the state that says how requests are answered.

What it knows is changed in place by the protocol's steps; what a crash must not take away is written as one
GroupMetadata record (see `records`) when the leader's assignment arrives, when the last member goes, and when a static
member is replaced.
"""

from __future__ import annotations

from typing import Final, Literal

from braidlog.coordinator.effects import Effects
from braidlog.coordinator.group.classic.consumer_protocol import subscribed_topics
from braidlog.coordinator.group.classic.member import ClassicGroupMember, MemberProtocol
from braidlog.coordinator.group.group import Kind
from braidlog.core.protocol_errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    IllegalGenerationError,
    NonEmptyGroupError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from braidlog.wire.generated.describe_groups import DescribedGroup, DescribedGroupMember
from braidlog.wire.generated.group_records import GroupMetadataKey, GroupMetadataValue
from braidlog.wire.generated.list_groups import ListedGroup
from braidlog.wire.version_prefix import version_prefixed_bytes

CONSUMER: Final = "consumer"
KEY_VERSION: Final = 2

State = Literal["Empty", "PreparingRebalance", "CompletingRebalance", "Stable", "Dead"]

# No members, perhaps offsets. A join starts a rebalance; simple commits are taken; it may be deleted.
EMPTY: Final = "Empty"
# Members are to join again: heartbeats are answered with REBALANCE_IN_PROGRESS, joins wait until all members have
# joined or time is up, syncs are refused.
PREPARING: Final = "PreparingRebalance"
# The generation is fixed and known to all members; syncs wait until the leader's brings the assignment.
COMPLETING: Final = "CompletingRebalance"
# Every member has, or can have, an assignment: syncs are answered at once.
STABLE: Final = "Stable"
# Gone: its members get COORDINATOR_NOT_AVAILABLE, and look up the group anew.
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


class ClassicGroup:
    """One group. `members` keeps the order of joining; the first that is there leads when the leader goes."""

    def __init__(self, group_id: str, state_since_ms: int = -1) -> None:
        self._group_id = group_id
        self.state: State = EMPTY
        self.state_since_ms = state_since_ms
        self.history: list[State] = []
        self.generation = 0
        # None until a member came: offsets alone make a simple group (no member ever needs to).
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.leader: str | None = None
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}
        # How many members can follow each protocol: one that all can is a candidate.
        self._supporters: dict[str, int] = {}
        # Invariant: the number of members with a join responder.
        self.num_awaiting_join = 0
        # Were given an id, with which they have to join (KIP-394), in order.
        self.pending_joins: dict[str, None] = {}
        # Know the generation and have not sent their sync.
        self.pending_syncs: dict[str, None] = {}
        # A member came during the initial delay, and how much of the delay may still be added.
        self.extend_delay = False
        self.delay_left_ms = 0
        # None where members do not say what they read in a way that can be understood.
        self.subscribed: frozenset[str] | None = None
        # What the log has for this group; equal to what is here whenever the group is Stable or Empty.
        self.stored: GroupMetadataValue | None = None

    @property
    def group_id(self) -> str:
        return self._group_id

    @property
    def kind(self) -> Kind:
        return "classic"

    def state_name(self) -> str:
        return self.state

    def as_listed_group(self) -> ListedGroup:
        return ListedGroup(
            group_id=self._group_id,
            protocol_type=self.protocol_type or "",
            group_state=self.state_name(),
            group_type=self.kind,
        )

    def as_described_group(self) -> DescribedGroup:
        # Only in a stable group the protocol is what all members agreed upon; the assignment is the last one they had.
        stable = self.state == STABLE
        return DescribedGroup(
            group_id=self._group_id,
            group_state=self.state,
            protocol_type=self.protocol_type or "",
            protocol_data=(self.protocol_name or "") if stable else "",
            members=[
                DescribedGroupMember(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    member_metadata=member.metadata_of(self.protocol_name) if stable else b"",
                    member_assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )

    def is_empty(self) -> bool:
        return self.state == EMPTY

    def transition_to(self, to: State, now_ms: int) -> None:
        if to not in TRANSITIONS[self.state]:
            raise IllegalGroupTransitionError(self._group_id, self.state, to, self.history)
        self.history = [*self.history[-7:], self.state]
        self.state = to
        self.state_since_ms = now_ms

    # Members

    def add(self, member: ClassicGroupMember) -> None:
        if not self.members and member.protocols:
            self._supporters = {}
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        if member.instance_id is not None:
            self.static_members[member.instance_id] = member.member_id
        self.pending_joins.pop(member.member_id, None)
        self._count_protocols(member, 1)
        self.num_awaiting_join += member.join_responder is not None

    def remove(self, member_id: str) -> ClassicGroupMember | None:
        """The member is gone, with its vote; its requests that wait are the caller's to answer."""
        self.pending_joins.pop(member_id, None)
        self.pending_syncs.pop(member_id, None)
        member = self.members.pop(member_id, None)
        if member is None:
            return None
        self._count_protocols(member, -1)
        self.num_awaiting_join -= member.join_responder is not None
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member_id:
            del self.static_members[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def replace_static(self, old: ClassicGroupMember, member_id: str) -> ClassicGroupMember:
        """The same member under another id: it keeps assignment, place and vote (KIP-345)."""
        new = ClassicGroupMember(
            member_id,
            old.instance_id,
            old.client_id,
            old.client_host,
            old.rebalance_timeout_ms,
            old.session_timeout_ms,
            old.protocols,
            old.assignment,
        )
        was_leader = self.leader == old.member_id
        self.remove(old.member_id)
        self.add(new)
        if was_leader:
            self.leader = member_id
        return new

    def set_protocols(self, member: ClassicGroupMember, protocols: list[MemberProtocol]) -> None:
        self._count_protocols(member, -1)
        member.protocols = protocols
        self._count_protocols(member, 1)

    def _count_protocols(self, member: ClassicGroupMember, by: int) -> None:
        for name in {name: None for name, _ in member.protocols}:
            count = self._supporters.get(name, 0) + by
            if count:
                self._supporters[name] = count
            else:
                self._supporters.pop(name, None)

    def supports(self, protocol_type: str, protocols: list[MemberProtocol]) -> bool:
        """Whether a member that offers these could take part."""
        if self.state == EMPTY:
            return bool(protocol_type and protocols)
        if protocol_type != self.protocol_type:
            return False
        members = len(self.members)
        return any(self._supporters.get(name, 0) == members for name, _ in protocols)

    def select_protocol(self) -> str:
        """By vote among those that every member supports; the earliest to be voted for wins a draw."""
        members = len(self.members)
        candidates = {name: 0 for name, count in self._supporters.items() if count == members}
        votes: dict[str, int] = {}
        for member in self.members.values():
            vote = member.preferred(candidates)
            if vote is not None:
                votes[vote] = votes.get(vote, 0) + 1
        return max(votes, key=votes.__getitem__)

    def has_all_members_joined(self) -> bool:
        return self.num_awaiting_join == len(self.members) and not self.pending_joins

    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def begin_generation(self, now_ms: int) -> None:
        """Every member that will take part has joined."""
        self.generation += 1
        self.pending_syncs.clear()
        self.protocol_name = self.select_protocol() if self.members else None
        self.learn_subscriptions()
        self.transition_to(COMPLETING if self.members else EMPTY, now_ms)

    def learn_subscriptions(self) -> None:
        if self.protocol_type != CONSUMER:
            self.subscribed = None
        elif not self.members:
            self.subscribed = frozenset()
        else:
            metadata = [member.metadata_of(self.protocol_name) for member in self.members.values()]
            self.subscribed = subscribed_topics(metadata)

    # What is asked of any group

    def validate_member(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            known = self.static_members.get(instance_id)
            if known is None:
                raise UnknownMemberIdError(f"group {self._group_id!r} has no instance {instance_id!r}")
            if known != member_id:
                raise FencedInstanceIdError(f"another member took the place of instance {instance_id!r}")
        if member_id not in self.members:
            raise UnknownMemberIdError(f"group {self._group_id!r} has no member {member_id!r}; join again")

    def validate_alive(self) -> None:
        if self.state == DEAD:
            raise CoordinatorNotAvailableError(f"group {self._group_id!r} is gone; look up its coordinator again")

    def validate_generation(self, generation: int) -> None:
        if generation != self.generation:
            message = f"group {self._group_id!r} is in generation {self.generation}, not {generation}"
            raise IllegalGenerationError(message)

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, transactional: bool, version: int
    ) -> None:
        self.validate_alive()
        if generation < 0 and self.state == EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self.validate_member(member_id, instance_id)
            self.validate_generation(generation)
        elif not transactional and self.state != EMPTY:
            # Old transactional producers do not say who they are (before KIP-447).
            raise UnknownMemberIdError(f"group {self._group_id!r} has members: only they may commit")
        if not transactional and self.state == COMPLETING:
            raise RebalanceInProgressError(f"group {self._group_id!r} waits for its assignment")

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if self.state == DEAD:
            raise GroupIdNotFoundError(f"group {self._group_id!r} is gone")

    def validate_offset_delete(self) -> None:
        if self.state == DEAD:
            raise GroupIdNotFoundError(f"group {self._group_id!r} is gone")
        if self.state != EMPTY and self.protocol_type != CONSUMER:
            raise NonEmptyGroupError(f"group {self._group_id!r} has members that may use the offsets")

    def validate_delete(self) -> None:
        if self.state == DEAD:
            raise GroupIdNotFoundError(f"group {self._group_id!r} is gone")
        if self.state != EMPTY:
            raise NonEmptyGroupError(f"group {self._group_id!r} has {len(self.members)} members; stop them first")

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed is None:
            # Members that cannot be understood may read anything.
            return self.protocol_type == CONSUMER
        return topic in self.subscribed

    def offsets_age_from(self, commit_timestamp_ms: int) -> int | None:
        if self.protocol_type is None:
            return commit_timestamp_ms
        if self.state == EMPTY:
            # From when the last member went, however long before it had committed (KIP-211).
            return self.state_since_ms if self.state_since_ms >= 0 else commit_timestamp_ms
        if self.state == STABLE and self.protocol_type == CONSUMER and self.subscribed is not None:
            return commit_timestamp_ms
        return None

    def write_tombstones(self, effects: Effects, *, applied: bool = False) -> None:
        effects.write(
            version_prefixed_bytes(GroupMetadataKey(group=self._group_id), KEY_VERSION), None, applied=applied
        )
