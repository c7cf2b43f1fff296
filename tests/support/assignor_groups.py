"""Groups of subscribers for assignors, and what every assignment must hold."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from braidlog.client.consumer.assignors.interface import Subscriber, TopicMetadata
from braidlog.core.types import TopicPartition

TOPICS = ("a", "b", "c", "d")


Owned = dict[str, list[TopicPartition]]


counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9), min_size=1)


names = st.lists(st.integers(0, 30).map("m{:02}".format), min_size=1, max_size=8, unique=True)


@st.composite
def groups(draw: st.DrawFn, alike: bool) -> tuple[list[Subscriber], TopicMetadata, Owned]:
    facts = TopicMetadata(draw(counts))
    reads = tuple(facts.counts) if alike else None
    members = [
        Subscriber(name, reads or tuple(draw(st.lists(st.sampled_from(TOPICS), min_size=1, unique=True))))
        for name in draw(names)
    ]
    owned: Owned = {member.member_id: [] for member in members}
    for partition in facts.partitions(facts.counts):
        owner = draw(st.sampled_from([None, *members]))
        if owner is not None and partition.topic in owner.topics:
            owned[owner.member_id].append(partition)
    return members, facts, owned


def check_whole(members: Sequence[Subscriber], facts: TopicMetadata, shares: Owned) -> None:
    """Every partition that somebody reads is with exactly one member, who reads it."""
    reads = {member.member_id: member.topics for member in members}
    for member_id, partitions in shares.items():
        assert all(partition.topic in reads[member_id] for partition in partitions)
    given_out = [partition for partitions in shares.values() for partition in partitions]
    read = [topic for topic in facts.counts if any(topic in topics for topics in reads.values())]
    assert sorted(given_out) == sorted(facts.partitions(read))
