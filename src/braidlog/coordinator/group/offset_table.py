"""The committed offsets of a shard's groups, by group, topic and partition."""

from __future__ import annotations

from collections.abc import Iterable

from braidlog.coordinator.group.offset_records import OffsetAndMetadata

PartitionOffsets = dict[int, OffsetAndMetadata]
TopicOffsets = dict[str, PartitionOffsets]


class OffsetTable:
    """What counts now. No level is ever kept empty."""

    def __init__(self) -> None:
        self._groups: dict[str, TopicOffsets] = {}
        self.count = 0

    def group_ids(self) -> Iterable[str]:
        return self._groups

    def of_group(self, group_id: str) -> TopicOffsets:
        """Not to be changed by whoever asks."""
        return self._groups.get(group_id) or {}

    def of_topic(self, group_id: str, topic: str) -> PartitionOffsets:
        return self.of_group(group_id).get(topic) or {}

    def get(self, group_id: str, topic: str, partition: int) -> OffsetAndMetadata | None:
        return self.of_topic(group_id, topic).get(partition)

    def put(self, group_id: str, topic: str, partition: int, committed: OffsetAndMetadata) -> None:
        topics = self._groups.get(group_id)
        if topics is None:
            topics = self._groups[group_id] = {}
        partitions = topics.get(topic)
        if partitions is None:
            partitions = topics[topic] = {}
        if partition not in partitions:
            self.count += 1
        partitions[partition] = committed

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._groups.get(group_id)
        partitions = None if topics is None else topics.get(topic)
        if topics is None or partitions is None or partitions.pop(partition, None) is None:
            return
        self.count -= 1
        if not partitions:
            del topics[topic]
            if not topics:
                del self._groups[group_id]

    def durable_state(self) -> object:
        return {
            group_id: {topic: dict(sorted(partitions.items())) for topic, partitions in sorted(topics.items())}
            for group_id, topics in sorted(self._groups.items())
        }
