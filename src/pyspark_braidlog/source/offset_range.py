"""What the driver plans and the tasks read: ranges of offsets, one a task, split where the options ask for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
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


def split(
    ranges: Sequence[OffsetRange], min_partitions: int | None = None, max_records_per_partition: int | None = None
) -> list[OffsetRange]:
    """In the order given, without those that are empty.

    First no piece is longer than `max_records_per_partition`; if there are then fewer than `min_partitions`, long ones
    are cut in proportion to their share of all records. Rounding makes that number approximate, as in Spark.
    """
    pieces = [each for each in ranges if each.size > 0]
    if max_records_per_partition is not None:
        pieces = [piece for each in pieces for piece in _cut(each, -(-each.size // max_records_per_partition))]
    if min_partitions is None or len(pieces) >= min_partitions or not pieces:
        return pieces
    total = sum(each.size for each in pieces)
    # Those with less than a share of their own stay whole, and leave the others what is left of the number.
    whole = {each for each in pieces if _parts(each.size, total, min_partitions) == 1}
    large_total = total - sum(each.size for each in whole)
    large_parts = max(min_partitions - len(whole), 1)
    return [
        piece
        for each in pieces
        for piece in _cut(each, 1 if each in whole else _parts(each.size, large_total, large_parts))
    ]


def _parts(size: int, total: int, wanted: int) -> int:
    return max(math.floor(size / total * wanted + 0.5), 1)


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    """Pieces as even as whole numbers allow, the longer ones last; never an empty one."""
    parts = min(parts, whole.size)
    pieces = []
    start = whole.start
    for left in range(parts, 0, -1):
        end = start + (whole.end - start) // left
        pieces.append(whole._replace(start=start, end=end))
        start = end
    return pieces
