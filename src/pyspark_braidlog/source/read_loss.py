"""What a task was to read and cannot, by cause, with what to do next.

Between the plan and the task retention may have deleted records, or somebody the topic. Holes that compaction, aborted
transactions and their markers leave are none of this: the log has offsets around them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from braidlog import TopicPartition
from pyspark_braidlog.source.data_loss import Cause, DataLoss
from pyspark_braidlog.source.offset_range import OffsetRange
from pyspark_braidlog.source.topics import Assign


class LogRange(NamedTuple):
    """A partition as the cluster has it now; `topic_id` is "" where the cluster has no ids."""

    topic_id: str
    start: int
    end: int


def find_log_range(client: Mapping[str, str], work: OffsetRange) -> LogRange | None:
    """None: there is no such partition."""
    # Importing this takes as long as the rest of a task's reading together, and most tasks lose nothing.
    from pyspark_braidlog.source.offset_reader import MissingTopics, OffsetReader

    place = TopicPartition(work.topic, work.partition)
    with OffsetReader(client) as view:
        try:
            facts = view.topics(Assign((place,)), missing_ok=True).get(work.topic)
            if facts is None or work.partition not in facts.partitions:
                return None
            # What an open transaction holds back is in the log, and not lost.
            return LogRange(facts.topic_id, view.earliest([place])[place], view.log_ends([place])[place])
        except MissingTopics:
            # Deleted between the questions.
            return None


@dataclass(frozen=True, slots=True)
class ReadLoss:
    """A range that cannot be read from `position` on, and what the log is now."""

    cause: Cause
    work: OffsetRange
    position: int
    now: LogRange | None

    @property
    def resume(self) -> int:
        """Where reading goes on; the range's end if nothing of it is left."""
        if self.cause is Cause.RETENTION and self.now is not None:
            return min(self.now.start, self.work.end)
        return self.work.end

    @property
    def lost(self) -> int:
        return self.resume - self.position

    def __str__(self) -> str:
        work, now = self.work, self.now
        place = TopicPartition(work.topic, work.partition)
        missed = f"{self.lost} offsets that this task was to read ({self.position} to {self.resume - 1})"
        if now is None:
            return f"{place}: the topic was deleted, and with it {missed}"
        if self.cause is Cause.RECREATION:
            return (
                f"{place}: the topic was deleted and created again since this was planned (its id was {work.topic_id} "
                f"and is {now.topic_id}), and with the old one went {missed}"
            )
        if self.cause is Cause.RETENTION:
            return f"{place}: retention deleted {missed}; the log begins at offset {now.start} now"
        again = "" if work.topic_id else ", or the topic was deleted and created again"
        return (
            f"{place}: the log was cut: it ends at offset {now.end} now, and lacks {missed}; "
            f"an unclean leader election or a lost disk does that{again}"
        )

    @property
    def advice(self) -> str:
        if self.cause is Cause.RETENTION:
            return "raise the topic's retention.ms and retention.bytes, or read sooner and in smaller batches; "
        if self.cause is Cause.RECREATION:
            return "run the query again to read the new topic; "
        return ""

    @property
    def way_on(self) -> str:
        left = self.work.end - self.resume
        return f"the {left} offsets from {self.resume} on are read" if left else "the rest of this range is left out"

    def refusal(self) -> DataLoss:
        return DataLoss(f"data was lost. {self}; {self.advice}to go on with what is there, set failOnDataLoss=false")

    def notice(self) -> str:
        return f"data was lost. {self}; failOnDataLoss=false: {self.way_on}"


def loss_of(work: OffsetRange, position: int, now: LogRange | None) -> ReadLoss | None:
    """Why nothing can be read at `position`; None if the log has it."""
    if now is None:
        return ReadLoss(Cause.DELETION, work, position, now)
    if work.topic_id and now.topic_id and work.topic_id != now.topic_id:
        return ReadLoss(Cause.RECREATION, work, position, now)
    if now.start > position:
        return ReadLoss(Cause.RETENTION, work, position, now)
    if now.end < work.end:
        return ReadLoss(Cause.TRUNCATION, work, position, now)
    return None
