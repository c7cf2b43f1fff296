from __future__ import annotations

from braidlog.client.consumer.assignors.interface import Assignor, Subscriber, TopicMetadata, readers_by_topic
from braidlog.core.types import TopicPartition

TOPICS = TopicMetadata({"b": 1, "a": 2, "empty": 0})


def test_static_members_come_first_whatever_their_member_id() -> None:
    members = [Subscriber("a", ()), Subscriber("z", (), instance_id="2"), Subscriber("y", (), instance_id="1")]
    assert [each.member_id for each in sorted(members, key=lambda each: each.rank)] == ["y", "z", "a"]


def test_who_reads_what_exists_in_order_of_names_and_ranks() -> None:
    members = [Subscriber("m2", ("b", "a", "b")), Subscriber("m1", ("a", "gone", "empty"))]
    found = readers_by_topic(members, TOPICS)
    assert [(topic, [each.member_id for each in readers]) for topic, readers in found.items()] == [
        ("a", ["m1", "m2"]),
        ("b", ["m2"]),
    ]


def test_partitions_in_the_order_of_topics() -> None:
    assert TOPICS.partitions(["b", "gone", "a"]) == [
        TopicPartition("b", 0),
        TopicPartition("a", 0),
        TopicPartition("a", 1),
    ]


def test_an_own_assignor_needs_no_more_than_assign() -> None:
    own = Assignor()
    assert own.user_data(["t"]) is None
    assert not own.cooperative
    own.on_reset()
