"""What an assignor is given, what it answers, and the class that users derive their own from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from braidlog.core.types import TopicPartition

# What a member says that has never been in a generation.
NO_GENERATION: Final = -1


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member as its own subscription describes it to the leader."""

    member_id: str
    topics: tuple[str, ...]
    instance_id: str | None = None
    # What it has right now (KIP-429), and since which generation (KIP-792); eager members have given up everything.
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    # Where it runs (KIP-881).
    rack: str | None = None
    # What this assignor's `user_data` said at that member.
    user_data: bytes | None = None

    @property
    def rank(self) -> tuple[int, str]:
        """Static members first, by their instance; so a restart under a new member id changes nothing."""
        return (0, self.instance_id) if self.instance_id is not None else (1, self.member_id)


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """What the leader knows of the topics that the group reads; topics that do not exist are left out."""

    counts: Mapping[str, int]
    # By topic, for each partition: the racks of its replicas. Empty where brokers say no racks.
    racks: Mapping[str, Sequence[frozenset[str]]] = field(default_factory=dict)

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """In order of the topics given, then of partitions."""
        return [TopicPartition(topic, index) for topic in topics for index in range(self.counts.get(topic, 0))]


@dataclass(slots=True)
class Assignment:
    """What one member is to read."""

    partitions: list[TopicPartition] = field(default_factory=list)
    user_data: bytes | None = None


class Assignor:
    """A way to assign partitions; derive from it and put an instance into `partition.assignment.strategy`.

    Every member of a group offers the names of its assignors in order of preference, and the coordinator picks one that
    all of them know. `assign` runs at one member, the leader; the rest at every member.
    """

    # As it goes over the wire: members of other clients find each other by it.
    name: str = ""
    # Whether members keep what they have during a rebalance; then `assign` must not give a member's partition away.
    cooperative: bool = False

    def assign(self, members: Sequence[Subscriber], topics: TopicMetadata) -> dict[str, Assignment]:
        """An assignment for each member, by member id; every subscribed partition of `topics` in exactly one."""
        raise NotImplementedError

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        """What this member sends to the leader's assignor beside its topics."""
        return None

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """This member was given its assignment."""

    def on_reset(self) -> None:
        """This member has lost everything: the group went on without it."""


def readers_by_topic(members: Sequence[Subscriber], topics: TopicMetadata) -> dict[str, list[Subscriber]]:
    """Who reads each topic that exists, in order of rank; topics in order of name."""
    found: dict[str, list[Subscriber]] = {}
    for member in sorted(members, key=lambda each: each.rank):
        for topic in dict.fromkeys(member.topics):
            if topics.counts.get(topic, 0) > 0:
                found.setdefault(topic, []).append(member)
    return dict(sorted(found.items()))
