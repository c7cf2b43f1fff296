"""The partitions that this broker holds, by name and by topic id."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from braidlog.core.ids import ZERO_ID
from braidlog.core.protocol_errors import NotLeaderOrFollowerError, ProtocolError, UnknownTopicOrPartitionError
from braidlog.replication.partition import Partition


def _is_known_nowhere(topic: str, index: int) -> bool:
    return False


def _has_no_name(topic_id: bytes) -> str | None:
    return None


class PartitionRegistry:
    def __init__(self) -> None:
        self._topics: dict[str, dict[int, Partition]] = {}
        self._names: dict[bytes, str] = {}
        # Asked about what is not held here: whether the cluster has such a partition, and the name of a topic id.
        self.is_known_elsewhere: Callable[[str, int], bool] = _is_known_nowhere
        self.name_elsewhere: Callable[[bytes], str | None] = _has_no_name

    def get(self, topic: str, index: int) -> Partition | None:
        partitions = self._topics.get(topic)
        return partitions.get(index) if partitions is not None else None

    def require(self, topic: str, index: int) -> Partition:
        partitions = self._topics.get(topic)
        if partitions is not None:
            partition = partitions.get(index)
            if partition is not None:
                return partition
        raise self.missing(topic, index)

    def missing(self, topic: str, index: int) -> ProtocolError:
        """Why a partition is not served here: another broker has it, or there is none."""
        if self.is_known_elsewhere(topic, index):
            return NotLeaderOrFollowerError("this broker has no replica of the partition; ask its leader")
        return UnknownTopicOrPartitionError()

    def name_of(self, topic_id: bytes) -> str | None:
        name = self._names.get(topic_id)
        if name is None:
            name = self.name_elsewhere(topic_id)
        return name

    def add(self, partition: Partition) -> None:
        self._topics.setdefault(partition.topic, {})[partition.index] = partition
        self.assign_topic_id(partition, partition.topic_id)

    def assign_topic_id(self, partition: Partition, topic_id: bytes) -> None:
        """A topic that an older controller made has none (ZERO_ID) until a newer one gives it one."""
        partition.topic_id = topic_id
        if topic_id != ZERO_ID:
            self._names[topic_id] = partition.topic

    def remove(self, topic: str, index: int) -> None:
        """Forget a partition that is deleted here."""
        partitions = self._topics.get(topic)
        if partitions is None:
            return
        removed = partitions.pop(index, None)
        if removed is not None and not partitions:
            del self._topics[topic]
            self._names.pop(removed.topic_id, None)

    def topics(self) -> list[str]:
        return list(self._topics)

    def partitions_of(self, topic: str) -> list[Partition]:
        return list(self._topics.get(topic, {}).values())

    def offline_of(self, topic: str) -> list[Partition]:
        """The partitions of a topic whose log is lost with its data directory."""
        return [partition for partition in self._topics.get(topic, {}).values() if partition.log is None]

    def partitions(self) -> Iterator[Partition]:
        for partitions in self._topics.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._topics.values())
