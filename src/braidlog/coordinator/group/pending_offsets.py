"""Offsets that open transactions wrote: they count once their producer's commit marker is there, or never."""

from __future__ import annotations

from braidlog.coordinator.group.offset_records import OffsetAndMetadata

# Group, topic, partition.
GroupTopicPartition = tuple[str, str, int]


class PendingOffsets:
    """Several producers may have an offset pending for the same partition; each has at most one.

    Kept by place for whoever asks about a partition, and by producer for its marker; both always say the same.
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
