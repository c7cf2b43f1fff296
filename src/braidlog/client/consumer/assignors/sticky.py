"""Sticky: even, and as it was as far as that goes.

Members of the sticky assignor give everything up before they join. What a member had is its user data, in the layout
of the Java client (KIP-54, KIP-341):

    previous_assignment  array of (topic string, partitions array of int32)
    generation           int32    not in the first version

Members of the cooperative-sticky assignor keep what they have while they rebalance (KIP-429). A partition that moves is
assigned to no member at first: its owner sees that it is not in its assignment any more, gives it up and joins again,
and only then another member gets it. Their user data is for leaders that do not read the generation of the
subscription itself (before KIP-792):

    generation  int32
"""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.client.consumer.assignors.balance import Claim, balanced, newest_owners
from braidlog.client.consumer.assignors.embedded_protocol import by_topic
from braidlog.client.consumer.assignors.interface import NO_GENERATION, Assignment, Assignor, Subscriber, TopicMetadata
from braidlog.core.types import TopicPartition
from braidlog.wire.errors import MalformedError
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer


class StickyAssignor(Assignor):
    name = "sticky"

    def __init__(self) -> None:
        self._had: Claim | None = None

    def assign(self, members: Sequence[Subscriber], topics: TopicMetadata) -> dict[str, Assignment]:
        claims = {member.member_id: read_claim(member.user_data) for member in members}
        balance = balanced(members, topics, claims)
        return {member_id: Assignment(partitions) for member_id, partitions in balance.items()}

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return None if self._had is None else write_claim(self._had)

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self._had = Claim(tuple(assignment.partitions), generation)


class CooperativeStickyAssignor(Assignor):
    name = "cooperative-sticky"
    cooperative = True

    def __init__(self) -> None:
        self._generation = NO_GENERATION

    def assign(self, members: Sequence[Subscriber], topics: TopicMetadata) -> dict[str, Assignment]:
        claims = {member.member_id: Claim(member.owned, generation_of(member)) for member in members}
        wanted = balanced(members, topics, claims)
        owned = {partition for member in members for partition in member.owned}
        # What two say they have, with equal right, both have to give up before it goes to either.
        owners = newest_owners(members, claims)
        assignments: dict[str, Assignment] = {}
        for member_id, partitions in wanted.items():
            mine = [each for each in partitions if each not in owned or owners.get(each) == member_id]
            assignments[member_id] = Assignment(mine)
        return assignments

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        writer = Writer()
        writer.int32(self._generation)
        return writer.getvalue()

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        self._generation = generation

    def on_reset(self) -> None:
        self._generation = NO_GENERATION


def write_claim(claim: Claim) -> bytes:
    writer = Writer()
    topics = by_topic(claim.partitions)
    writer.count(len(topics), False)
    for topic, numbers in topics.items():
        writer.string(topic, False)
        writer.int32s(numbers, False)
    writer.int32(claim.generation)
    return writer.getvalue()


def read_claim(content: bytes | None) -> Claim:
    """What another member had; what cannot be understood is nothing, so its owner merely loses stickiness."""
    if not content:
        return Claim((), NO_GENERATION)
    found: list[TopicPartition] = []
    reader = Reader(content)
    try:
        for _ in range(reader.count(False, 6)):
            topic = reader.string(False)
            found += [TopicPartition(topic, number) for number in reader.int32s(False)]
    except MalformedError:
        return Claim((), NO_GENERATION)
    try:
        return Claim(found, reader.int32())
    except MalformedError:
        # Written by a client from before generations were part of it.
        return Claim(found, NO_GENERATION)


def generation_of(member: Subscriber) -> int:
    if member.generation != NO_GENERATION or not member.user_data:
        return member.generation
    try:
        return Reader(member.user_data).int32()
    except MalformedError:
        return NO_GENERATION
