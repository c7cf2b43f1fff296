"""The offsets of a shard's groups: those that are committed, and those that open transactions wrote."""

from __future__ import annotations

from collections.abc import Iterable

from braidlog.coordinator.group.offset_records import OffsetAndMetadata

# Group, topic, partition.
GroupTopicPartition = tuple[str, str, int]
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
        """Callers must not change it."""
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


class PendingOffsets:
    """Offsets of open transactions: they count once their producer's commit marker is there, or never.

    Several producers may have an offset pending for the same partition; each has at most one. Kept by partition for
    reads, and by producer for its marker; both always say the same.
    """

    def __init__(self) -> None:
        self._by_partition: dict[str, dict[tuple[str, int], dict[int, OffsetAndMetadata]]] = {}
        self._by_producer: dict[int, dict[GroupTopicPartition, None]] = {}

    def __len__(self) -> int:
        return sum(len(places) for places in self._by_producer.values())

    def put(self, producer_id: int, group_id: str, topic: str, partition: int, committed: OffsetAndMetadata) -> None:
        places = self._by_partition.setdefault(group_id, {})
        places.setdefault((topic, partition), {})[producer_id] = committed
        self._by_producer.setdefault(producer_id, {})[(group_id, topic, partition)] = None

    def take(self, producer_id: int) -> list[tuple[GroupTopicPartition, OffsetAndMetadata]]:
        """All that the producer's transaction wrote, in the order of writing; none of it is pending any more."""
        taken: list[tuple[GroupTopicPartition, OffsetAndMetadata]] = []
        for place in self._by_producer.pop(producer_id, {}):
            group_id, topic, partition = place
            places = self._by_partition[group_id]
            producers = places[(topic, partition)]
            taken.append((place, producers.pop(producer_id)))
            if not producers:
                self._forget_partition(group_id, topic, partition)
        return taken

    def drop(self, group_id: str, topic: str, partition: int) -> None:
        """The partition's offset was deleted, and with it what transactions wrote there before."""
        producers = self._by_partition.get(group_id, {}).get((topic, partition))
        if producers is None:
            return
        for producer_id in producers:
            places = self._by_producer[producer_id]
            del places[(group_id, topic, partition)]
            if not places:
                del self._by_producer[producer_id]
        self._forget_partition(group_id, topic, partition)

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        places = self._by_partition.get(group_id)
        return places is not None and (topic, partition) in places

    def has_group(self, group_id: str) -> bool:
        return group_id in self._by_partition

    def group_ids(self) -> list[str]:
        return list(self._by_partition)

    def of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Topic and partition of everything pending for the group."""
        return list(self._by_partition.get(group_id, ()))

    def newest_record(self, group_id: str, topic: str, partition: int) -> int:
        producers = self._by_partition.get(group_id, {}).get((topic, partition), {})
        return max((committed.record_offset for committed in producers.values()), default=-1)

    def _forget_partition(self, group_id: str, topic: str, partition: int) -> None:
        places = self._by_partition[group_id]
        del places[(topic, partition)]
        if not places:
            del self._by_partition[group_id]

    def durable_state(self) -> object:
        return {
            group_id: {place: dict(sorted(producers.items())) for place, producers in sorted(places.items())}
            for group_id, places in sorted(self._by_partition.items())
        }
