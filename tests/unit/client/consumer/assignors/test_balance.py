"""Sticky sharing: every partition once, even, and no more moved than that takes; cooperative members give up first."""

from __future__ import annotations

import time
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.client.consumer.assignors.balance import Claim, balanced
from braidlog.client.consumer.assignors.interface import Assignment, Assignor, Subscriber, TopicMetadata
from braidlog.client.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
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


def claims(owned: Owned) -> dict[str, Claim]:
    return {member: Claim(partitions, 5) for member, partitions in owned.items()}


def check_whole(members: Sequence[Subscriber], facts: TopicMetadata, shares: Owned) -> None:
    """Every partition that somebody reads is with exactly one member, who reads it."""
    reads = {member.member_id: member.topics for member in members}
    for member_id, partitions in shares.items():
        assert all(partition.topic in reads[member_id] for partition in partitions)
    given_out = [partition for partitions in shares.values() for partition in partitions]
    read = [topic for topic in facts.counts if any(topic in topics for topics in reads.values())]
    assert sorted(given_out) == sorted(facts.partitions(read))


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


@given(groups(alike=False), st.data())
def test_cooperative_members_give_up_before_others_get(
    group: tuple[list[Subscriber], TopicMetadata, Owned], data: st.DataObject
) -> None:
    members, facts, owned = group

    def rebalance() -> Owned:
        reported = [
            Subscriber(each.member_id, each.topics, owned=tuple(owned[each.member_id]), generation=3)
            for each in members
        ]
        return {name: share.partitions for name, share in CooperativeStickyAssignor().assign(reported, facts).items()}

    # Two rounds where all read the same topics; where they do not, what was given up may change the best shares again.
    for _ in range(10):
        shares = rebalance()
        for name, partitions in shares.items():
            for other, had in owned.items():
                assert other == name or not set(partitions) & set(had), "given away while somebody has it"
        settled = all(set(shares[name]) == set(owned[name]) for name in owned)
        owned = shares
        if settled:
            break
    assert settled, "the members give partitions to and fro"
    check_whole(members, facts, owned)


def test_newer_claims_win_and_equal_ones_cancel_out() -> None:
    zero, one = TopicPartition("a", 0), TopicPartition("a", 1)
    members = [Subscriber("x", ("a",)), Subscriber("y", ("a",))]
    facts = TopicMetadata({"a": 2})
    for newer, older in (("x", "y"), ("y", "x")):
        shares = balanced(members, facts, {older: Claim([zero], 3), newer: Claim([zero], 4)})
        assert shares[newer] == [zero]
        assert shares[older] == [one]
    shares = balanced(members, facts, {"x": Claim([zero, one], 3), "y": Claim([zero, one], 3)})
    check_whole(members, facts, shares)


def test_sticky_members_send_what_they_had() -> None:
    members: dict[str, Assignor] = {name: StickyAssignor() for name in ("x", "y")}
    facts = TopicMetadata({"a": 5, "b": 4})

    def rebalance(generation: int) -> dict[str, set[TopicPartition]]:
        reported = [
            Subscriber(name, ("a", "b"), user_data=each.user_data(["a", "b"])) for name, each in members.items()
        ]
        shares = next(iter(members.values())).assign(reported, facts)
        for name, share in shares.items():
            members[name].on_assignment(share, generation)
        return {name: set(share.partitions) for name, share in shares.items()}

    before = rebalance(1)
    members["w"] = StickyAssignor()
    between = rebalance(2)
    assert all(between[name] <= before[name] for name in ("x", "y"))
    del members["w"]
    after = rebalance(3)
    assert all(between[name] <= after[name] for name in ("x", "y"))


def test_what_two_members_have_with_equal_right_goes_to_neither_at_first() -> None:
    zero, one = TopicPartition("a", 0), TopicPartition("a", 1)
    reported = [
        Subscriber("m1", ("a",), owned=(zero,), generation=5),
        Subscriber("m2", ("a",), owned=(zero, one), generation=5),
    ]
    shares = CooperativeStickyAssignor().assign(reported, TopicMetadata({"a": 2}))
    assert {name: share.partitions for name, share in shares.items()} == {"m1": [], "m2": [one]}
    # An older claim is not believed, and delays no other member.
    reported[1] = Subscriber("m2", ("a",), owned=(zero, one), generation=4)
    shares = CooperativeStickyAssignor().assign(reported, TopicMetadata({"a": 2}))
    assert {name: share.partitions for name, share in shares.items()} == {"m1": [zero], "m2": [one]}


def test_cooperative_reads_the_generation_of_older_clients() -> None:
    mine = CooperativeStickyAssignor()
    mine.on_assignment(Assignment([]), 8)
    zero = TopicPartition("a", 0)
    reported = [
        Subscriber("old", ("a",), owned=(zero,), generation=7),
        Subscriber("v1", ("a",), owned=(zero,), user_data=mine.user_data(["a"])),
    ]
    shares = CooperativeStickyAssignor().assign(reported, TopicMetadata({"a": 1}))
    assert shares["v1"].partitions == [zero]
    assert shares["old"].partitions == []


@settings(max_examples=5)
@given(st.booleans())
def test_a_large_group_is_assigned_quickly(alike: bool) -> None:
    facts = TopicMetadata({f"t{index}": 100 for index in range(100)})
    members = [
        Subscriber(f"m{index:04}", tuple(facts.counts) if alike else tuple(list(facts.counts)[: 50 + index % 50]))
        for index in range(1_000)
    ]
    began = time.perf_counter()
    shares = balanced(members, facts, {})
    check_whole(members, facts, shares)
    balanced(members[:900], facts, claims(shares))
    assert time.perf_counter() - began < 10
