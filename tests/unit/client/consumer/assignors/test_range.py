from __future__ import annotations

from braidlog.client.consumer.assignors.interface import Subscriber, TopicMetadata
from braidlog.client.consumer.assignors.range import RangeAssignor


def assigned(members: list[Subscriber], topics: TopicMetadata) -> dict[str, list[str]]:
    found = RangeAssignor().assign(members, topics)
    return {member: [str(each) for each in part.partitions] for member, part in found.items()}


def test_each_topic_is_cut_in_ranges_and_the_first_get_the_rest() -> None:
    members = [Subscriber("b", ("t", "u")), Subscriber("a", ("t", "u"))]
    assert assigned(members, TopicMetadata({"t": 3, "u": 2})) == {
        "a": ["t-0", "t-1", "u-0"],
        "b": ["t-2", "u-1"],
    }


def test_static_members_keep_their_range_under_a_new_member_id() -> None:
    before = [Subscriber("x", ("t",), instance_id="1"), Subscriber("y", ("t",), instance_id="2")]
    after = [Subscriber("zz", ("t",), instance_id="1"), Subscriber("y", ("t",), instance_id="2")]
    topics = TopicMetadata({"t": 2})
    assert assigned(before, topics)["x"] == assigned(after, topics)["zz"] == ["t-0"]


def test_replicas_in_the_same_rack_are_preferred() -> None:
    racks = {"t": [frozenset({"r2"}), frozenset({"r1"})]}
    members = [Subscriber("a", ("t",), rack="r1"), Subscriber("b", ("t",), rack="r2")]
    assert assigned(members, TopicMetadata({"t": 2}, racks)) == {"a": ["t-1"], "b": ["t-0"]}
    assert assigned(members, TopicMetadata({"t": 2})) == {"a": ["t-0"], "b": ["t-1"]}
