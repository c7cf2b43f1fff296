"""The partitions that this broker holds, by name and by topic id."""

from __future__ import annotations

from collections.abc import Iterator

from braidlog.core.protocol_errors import UnknownTopicOrPartitionError
from braidlog.replication.partition import Partition


class PartitionRegistry:
    def __init__(self) -> None:
        self._topics: dict[str, dict[int, Partition]] = {}
        self._names: dict[bytes, str] = {}

    def get(self, topic: str, index: int) -> Partition | None:
        partitions = self._topics.get(topic)
        return partitions.get(index) if partitions is not None else None

    def require(self, topic: str, index: int) -> Partition:
        partitions = self._topics.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        raise UnknownTopicOrPartitionError

    def name_of(self, topic_id: bytes) -> str | None:
        return self._names.get(topic_id)

    def add(self, partition: Partition) -> None:
        self._topics.setdefault(partition.topic, {})[partition.index] = partition
        self._names[partition.topic_id] = partition.topic

    def remove_topic(self, topic: str) -> list[Partition]:
        """Forget a deleted topic; the waiting readers of its partitions learn of it."""
        partitions = list(self._topics.pop(topic, {}).values())
        for partition in partitions:
            self._names.pop(partition.topic_id, None)
            partition.leader = -1
            partition.wake_readers()
        return partitions

    def topics(self) -> list[str]:
        return list(self._topics)

    def partitions_of(self, topic: str) -> list[Partition]:
        return list(self._topics.get(topic, {}).values())

    def offline_of(self, topic: str) -> list[int]:
        """The partitions of a topic whose log is lost with its data directory."""
        return [index for index, partition in self._topics.get(topic, {}).items() if partition.log is None]

    def partitions(self) -> Iterator[Partition]:
        for partitions in self._topics.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._topics.values())
