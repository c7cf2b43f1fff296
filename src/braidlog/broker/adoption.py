"""Topics that lie in the data directories but not in the store: how a Kafka's data directory becomes ours."""

from __future__ import annotations

from dataclasses import dataclass

from braidlog.cluster.image import ClusterImage
from braidlog.config.topic_names import is_internal
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.log_manager import LogManager

# A KRaft broker keeps its cluster's metadata beside the topics, in a log that is none.
KRAFT_METADATA = "__cluster_metadata"


@dataclass(frozen=True, slots=True)
class FoundTopic:
    name: str
    # None where the directories are older than topic ids, or disagree about them.
    topic_id: bytes | None
    partitions: tuple[TopicPartition, ...]

    @property
    def partition_count(self) -> int:
        return max(partition.partition for partition in self.partitions) + 1


def topics_to_adopt(logs: LogManager, image: ClusterImage) -> list[FoundTopic]:
    """Found topics that the cluster does not know, by name; internal ones last, since their records tell of others."""
    found: dict[str, list[TopicPartition]] = {}
    for partition in sorted(logs.partitions):
        if image.topic(partition.topic) is None and partition.topic != KRAFT_METADATA:
            found.setdefault(partition.topic, []).append(partition)
    topics: list[FoundTopic] = []
    for name, partitions in found.items():
        ids = {logs.topic_id(partition) for partition in partitions}
        topics.append(FoundTopic(name, ids.pop() if len(ids) == 1 else None, tuple(partitions)))
    return sorted(topics, key=lambda topic: is_internal(topic.name))
