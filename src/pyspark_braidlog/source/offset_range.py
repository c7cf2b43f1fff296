"""What the driver plans and the tasks read: ranges of offsets."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql.datasource import InputPartition

from braidlog import TopicPartition

# Where a batch begins or ends: the next offset to read, for every partition.
Offsets = dict[TopicPartition, int]


class OffsetRange(NamedTuple):
    """[start, end) of one partition; `topic_id` is the topic's at planning, "" where the cluster has no ids."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""

    @property
    def size(self) -> int:
        return self.end - self.start


class RangePartition(InputPartition):
    """One Spark task's work; a range of nothing stands for a batch without data."""

    def __init__(self, work: OffsetRange) -> None:
        super().__init__(work)

    @property
    def work(self) -> OffsetRange:
        work = self.value
        assert isinstance(work, OffsetRange)
        return work
