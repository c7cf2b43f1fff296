"""What a leader learns of topics, and what it refuses of assignors."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import pytest

from braidlog.client.cluster_view import BrokerView, ClusterView, PartitionView, TopicView
from braidlog.client.consumer.assignors.embedded_protocol import read_assignment, write_subscription
from braidlog.client.consumer.assignors.interface import Assignment, Assignor, Subscriber, TopicMetadata
from braidlog.client.consumer.assignors.range import RangeAssignor
from braidlog.client.consumer.group.leader_assignment import (
    perform_assignment,
    subscribers,
    topic_metadata_of,
    topics_of,
)
from braidlog.client.errors import ClientError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.join_group import JoinGroupResponseMember

BOTH = [Subscriber("x", ("t",)), Subscriber("y", ("t",))]


def view(**racks: str | None) -> ClusterView:
    brokers = {number: BrokerView(number, "h", 1, rack) for number, rack in enumerate(racks.values())}
    partition = [PartitionView(index, 0, 0, tuple(brokers), tuple(brokers), ()) for index in range(2)]
    topics = {
        "t": TopicView("t", b"", 0, False, tuple(partition)),
        "gone": TopicView("gone", b"", 3, False, ()),
    }
    return ClusterView("c", 0, MappingProxyType(brokers), MappingProxyType(topics))


def test_topics_that_do_not_exist_are_left_out() -> None:
    assert topic_metadata_of(view(a=None), ["t", "gone", "never"], with_racks=True) == TopicMetadata({"t": 2})


def test_racks_are_included_where_they_are_wanted() -> None:
    known = view(a="r1", b="r2", c=None)
    assert topic_metadata_of(known, ["t"], with_racks=False) == TopicMetadata({"t": 2})
    assert topic_metadata_of(known, ["t"], with_racks=True).racks == {"t": [frozenset({"r1", "r2"})] * 2}


def test_members_are_read_from_what_they_said() -> None:
    reported = write_subscription(["b", "a"], None, [], -1, None)
    [one] = subscribers([JoinGroupResponseMember(member_id="m", metadata=reported)])
    assert topics_of([one]) == {"a", "b"}
    with pytest.raises(ClientError, match="describe_groups"):
        subscribers([JoinGroupResponseMember(member_id="m", metadata=b"?")])


def test_assignments_are_bytes_by_member() -> None:
    shares = dict(perform_assignment(RangeAssignor(), BOTH, TopicMetadata({"t": 3})))
    assert read_assignment(shares["x"]).partitions == [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert read_assignment(shares["y"]).partitions == [TopicPartition("t", 2)]


class Careless(Assignor):
    name = "careless"

    def __init__(self, shares: dict[str, Assignment]) -> None:
        self._shares = shares

    def assign(self, members: Sequence[Subscriber], topics: TopicMetadata) -> dict[str, Assignment]:
        return self._shares


@pytest.mark.parametrize(
    ("shares", "reported"),
    [
        ({"z": Assignment()}, "do not exist"),
        ({"x": Assignment([TopicPartition("t", 0)]), "y": Assignment([TopicPartition("t", 0)])}, "t-0 to both x and y"),
    ],
)
def test_careless_assignors_are_refused(shares: dict[str, Assignment], reported: str) -> None:
    with pytest.raises(ClientError, match=reported):
        perform_assignment(Careless(shares), BOTH, TopicMetadata({"t": 1}))
