"""Sticky sharing: every partition once, even, and no more moved than that takes; cooperative members give up first."""

from __future__ import annotations

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.client.consumer.assignors.balance import Claim, balanced
from braidlog.client.consumer.assignors.interface import Subscriber, TopicMetadata
from support.assignor_groups import Owned, check_whole, groups


def claims(owned: Owned) -> dict[str, Claim]:
    return {member: Claim(partitions, 5) for member, partitions in owned.items()}


@given(groups(alike=True))
def test_alike_members_differ_by_one_at_most_and_move_the_least(
    group: tuple[list[Subscriber], TopicMetadata, Owned],
) -> None:
    members, facts, owned = group
    shares = balanced(members, facts, claims(owned))
    check_whole(members, facts, shares)
    sizes = sorted(map(len, shares.values()))
    assert sizes[-1] - sizes[0] <= 1
    kept = sum(len(set(shares[member]) & set(owned[member])) for member in shares)
    # No even sharing keeps more: the ones that had the most are those who get one more.
    least, more = divmod(sum(facts.counts.values()), len(members))
    had = sorted(map(len, owned.values()), reverse=True)
    assert kept == sum(min(size, least + (place < more)) for place, size in enumerate(had))


@given(groups(alike=False))
def test_no_single_move_would_make_two_members_more_even(group: tuple[list[Subscriber], TopicMetadata, Owned]) -> None:
    members, facts, owned = group
    shares = balanced(members, facts, claims(owned))
    check_whole(members, facts, shares)
    for member in members:
        for partitions in shares.values():
            takes = [partition for partition in partitions if partition.topic in member.topics]
            assert not takes or len(partitions) - len(shares[member.member_id]) < 2
    again = balanced(members, facts, claims(shares))
    assert {member: set(had) for member, had in again.items()} == {member: set(had) for member, had in shares.items()}


@settings(max_examples=5)
@given(st.booleans())
def test_a_large_group_is_assigned_quickly(alike: bool) -> None:
    facts = TopicMetadata({f"t{index}": 100 for index in range(100)})
    members = [
        Subscriber(f"m{index:04}", tuple(facts.counts) if alike else tuple(list(facts.counts)[: 50 + index % 50]))
        for index in range(1_000)
    ]
    began = time.thread_time()
    shares = balanced(members, facts, {})
    check_whole(members, facts, shares)
    balanced(members[:900], facts, claims(shares))
    assert time.thread_time() - began < 10
