"""Cooperative-sticky: the sticky sharing for members that keep what they have while they rebalance (KIP-429).

A partition that moves is given to nobody at first: its owner sees that it is not in its share any more, gives it up and
joins again, and only then another member gets it.

User data, of use to leaders that do not read the generation of the subscription itself (before KIP-792):

    generation  int32
"""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.client.consumer.assignors.balance import Claim, balanced, newest_owners
from braidlog.client.consumer.assignors.interface import NO_GENERATION, Assignment, Assignor, Subscriber, TopicMetadata
from braidlog.wire.errors import MalformedError
from braidlog.wire.reader import Reader
from braidlog.wire.writer import Writer


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
        shares: dict[str, Assignment] = {}
        for member_id, partitions in wanted.items():
            mine = [each for each in partitions if each not in owned or owners.get(each) == member_id]
            shares[member_id] = Assignment(mine)
        return shares

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        writer = Writer()
        writer.int32(self._generation)
        return writer.getvalue()

    def on_assignment(self, share: Assignment, generation: int) -> None:
        self._generation = generation

    def on_reset(self) -> None:
        self._generation = NO_GENERATION


def generation_of(member: Subscriber) -> int:
    if member.generation != NO_GENERATION or not member.user_data:
        return member.generation
    try:
        return Reader(member.user_data).int32()
    except MalformedError:
        return NO_GENERATION
