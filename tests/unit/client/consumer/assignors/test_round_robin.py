from __future__ import annotations

from braidlog.client.consumer.assignors.interface import Subscriber, TopicMetadata
from braidlog.client.consumer.assignors.round_robin import RoundRobinAssignor


def assigned(members: list[Subscriber], **counts: int) -> dict[str, list[str]]:
    found = RoundRobinAssignor().assign(members, TopicMetadata(counts))
    return {member: [str(each) for each in part.partitions] for member, part in found.items()}


def test_partitions_go_round_in_order() -> None:
    members = [Subscriber("a", ("t", "u")), Subscriber("b", ("u", "t"))]
    assert assigned(members, t=3, u=2) == {"a": ["t-0", "t-2", "u-1"], "b": ["t-1", "u-0"]}


def test_who_does_not_read_a_topic_is_passed_over() -> None:
    members = [Subscriber("a", ("t",)), Subscriber("b", ("t", "u"))]
    assert assigned(members, t=1, u=2) == {"a": ["t-0"], "b": ["u-0", "u-1"]}


def test_members_without_anything_are_assigned_nothing() -> None:
    assert assigned([Subscriber("a", ("gone",))]) == {"a": []}
