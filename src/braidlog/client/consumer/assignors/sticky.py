"""Sticky: even, and as it was as far as that goes; every member gives everything up first, and tells what it had.

What a member had is its user data, in the layout of the Java client (KIP-54, KIP-341):

    previous_assignment  array of (topic string, partitions array of int32)
    generation           int32    not in the first version
"""

from __future__ import annotations

from collections.abc import Sequence

from braidlog.client.consumer.assignors.balance import Claim, balanced
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
        shares = balanced(members, topics, claims)
        return {member_id: Assignment(partitions) for member_id, partitions in shares.items()}

    def user_data(self, topics: Sequence[str]) -> bytes | None:
        return None if self._had is None else write_claim(self._had)

    def on_assignment(self, share: Assignment, generation: int) -> None:
        self._had = Claim(tuple(share.partitions), generation)


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
        # Written by a client from before generations were told.
        return Claim(found, NO_GENERATION)
