from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braidlog.client.consumer.assignors.balance import Claim, balanced
from braidlog.client.consumer.assignors.interface import Assignment, Assignor, Subscriber, TopicMetadata
from braidlog.client.consumer.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from braidlog.core.types import TopicPartition
from support.assignor_groups import Owned, check_whole, groups


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
