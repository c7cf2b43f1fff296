"""Partitions that do not exist are answered without the coordinator."""

from __future__ import annotations

from collections.abc import Iterable

from braidlog.broker.handlers.groups.group_requests import split_existing
from braidlog.coordinator.group.topics import TopicFacts
from braidlog.wire.generated.offset_delete import OffsetDeleteRequestPartition, OffsetDeleteRequestTopic


class OneTopic:
    """A cluster with the topic `orders` of two partitions."""

    def get(self, name: str) -> TopicFacts | None:
        return TopicFacts(b"i" * 16, 2) if name == "orders" else None

    def name_of(self, topic_id: bytes) -> str | None:
        return None

    def names(self) -> Iterable[str]:
        return ["orders"]

    def racks_of(self, name: str, partition: int) -> frozenset[str]:
        return frozenset()


def wanted(name: str, *partitions: int) -> OffsetDeleteRequestTopic:
    each = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    return OffsetDeleteRequestTopic(name=name, partitions=each)


def test_partitions_are_split_by_whether_they_exist() -> None:
    known, unknown = split_existing([wanted("orders", 1, 2, -1), wanted("gone", 0), wanted("orders", 0)], OneTopic())
    assert [(topic.name, [p.partition_index for p in topic.partitions]) for topic in known] == [
        ("orders", [1]),
        ("orders", [0]),
    ]
    assert [(topic.name, [p.partition_index for p in missing]) for topic, missing in unknown] == [
        ("orders", [2, -1]),
        ("gone", [0]),
    ]
