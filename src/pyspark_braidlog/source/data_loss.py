"""What a stream, or one of its tasks, can no longer read, by cause; what only looks like data loss is not reported.

Compacted records, aborted transactions and their markers leave holes between offsets that are there: these are not data
loss. Lost is what lies before the log's first offset, after its last, in a topic that is gone, or in one
that was created again. The planner compares a stream's position with the log (`examine`); a task, whose records may be
deleted after the plan was made, compares its range (`loss_of`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, NamedTuple, assert_never

from braidlog import TopicPartition
from braidlog.core.errors import UserError
from pyspark_braidlog.source.offset_range import OffsetRange, Offsets
from pyspark_braidlog.source.offset_range_limit import AtOffsets, Committed
from pyspark_braidlog.source.options import ReadOptions
from pyspark_braidlog.source.stream_offset import StreamOffset
from pyspark_braidlog.source.topics import Assign, ConsumerStrategy, Subscribe, SubscribePattern, TopicFacts, compiled

# At most this many are reported in full.
_MOST_REPORTED: Final = 5


class Cause(Enum):
    # The log begins after the position: time or size took what was before, or records were deleted.
    RETENTION = auto()
    # The log ends before the position, and it is the same topic: an unclean election, or a disk that lost a tail.
    TRUNCATION = auto()
    # The name stands for another topic now.
    RECREATION = auto()
    DELETION = auto()
    # The topic is there, but the options do not choose it any more.
    UNCHOSEN = auto()
    # The starting offset of a new stream does not exist.
    OUT_OF_RANGE = auto()


_POSITIONAL: Final = (Cause.RETENTION, Cause.TRUNCATION)


class DataLoss(UserError):
    """A stream was to read what is not there; the message says what, why, and how to go on."""


@dataclass(frozen=True, slots=True)
class Loss:
    cause: Cause
    place: TopicPartition
    # The next offset that the stream was to read; None of a partition that it had not begun to read.
    position: int | None
    # Where it can go on; None if it cannot.
    resume: int | None

    def __str__(self) -> str:
        place, position, resume = self.place, self.position, self.resume
        match self.cause:
            case Cause.RETENTION if position is not None:
                resume = self.resume or 0
                return (
                    f"{place}: retention deleted {resume - position} offsets ({position} to {resume - 1}) before they "
                    f"were read; the log begins at {resume}"
                )
            case Cause.RETENTION:
                return f"{place} is new to the stream and begins at offset {resume}: retention took what was before"
            case Cause.TRUNCATION:
                return (
                    f"{place}: the log was truncated: it ends at {resume}, but the stream has read up to {position}; "
                    "what was in between is gone, and what comes there will be other records"
                )
            case Cause.RECREATION:
                return (
                    f"{place}: the topic was deleted and created again (its id is another); the stream was at offset "
                    f"{position} of the old one, whose unread records are gone"
                )
            case Cause.DELETION:
                return f"{place} was deleted; the stream was at offset {position}, and what came after is gone"
            case Cause.UNCHOSEN:
                return f"{place} is not among what the options choose any more; the stream was at offset {position}"
            case Cause.OUT_OF_RANGE:
                verb = "begins" if (position or 0) < (resume or 0) else "ends"
                return f"{place}: the stream was to begin at offset {position}, but the log {verb} at {resume}"
            case _:
                assert_never(self.cause)

    @property
    def way_on(self) -> str:
        return f"reading it ends at {self.position}" if self.resume is None else f"reading goes on at {self.resume}"


@dataclass(frozen=True, slots=True)
class Findings:
    losses: tuple[Loss, ...]
    # Where the next batch begins, in all partitions that can be read.
    begin: Offsets


def examine(
    start: StreamOffset,
    options: ReadOptions,
    facts: Mapping[str, TopicFacts],
    *,
    earliest: Offsets,
    ends: Offsets,
) -> Findings:
    """Compare where a stream stands with what there is.

    `earliest` may leave out partitions of which it is not asked; of those that are new to the stream, or of another
    topic than before, it is needed. `ends` are log ends, not those of committed records.
    """
    losses: list[Loss] = []
    begin: Offsets = {}
    there = {TopicPartition(topic, each) for topic, fact in facts.items() for each in fact.partitions}
    for place in sorted(there | start.offsets.keys()):
        position = start.offsets.get(place)
        loss: Loss | None = None
        if place not in there:
            cause = Cause.DELETION if is_chosen(options.consumer_strategy, place) else Cause.UNCHOSEN
            losses.append(Loss(cause, place, position, None))
            continue
        first = earliest.get(place)
        if position is None:
            begin[place] = first or 0
            loss = Loss(Cause.RETENTION, place, None, first) if first else None
        elif is_other_topic(start, facts, place.topic):
            begin[place] = first or 0
            loss = Loss(Cause.RECREATION, place, position, first or 0)
        elif position > ends[place]:
            begin[place] = ends[place]
            loss = Loss(Cause.TRUNCATION, place, position, ends[place])
        elif first is not None and position < first:
            begin[place] = first
            loss = Loss(Cause.RETENTION, place, position, first)
        else:
            begin[place] = position
        if loss is not None and loss.cause in _POSITIONAL and start.is_initial and position is not None:
            # Nothing was read yet: only offsets that were asked for by number, or read up to, can be missed.
            is_exact = isinstance(options.starting, (AtOffsets, Committed))
            loss = replace(loss, cause=Cause.OUT_OF_RANGE) if is_exact else None
        if loss is not None:
            losses.append(loss)
    return Findings(tuple(losses), begin)


def is_other_topic(start: StreamOffset, facts: Mapping[str, TopicFacts], topic: str) -> bool:
    before, now = start.ids.get(topic, ""), facts[topic].topic_id
    return bool(before and now and before != now)


def is_chosen(consumer_strategy: ConsumerStrategy, place: TopicPartition) -> bool:
    """Whether the options mean this partition, be it there or not."""
    if isinstance(consumer_strategy, Subscribe):
        return place.topic in consumer_strategy.topics
    if isinstance(consumer_strategy, SubscribePattern):
        return compiled(consumer_strategy.pattern).search(place.topic) is not None
    return place in consumer_strategy.partitions


def refusal(losses: Sequence[Loss]) -> DataLoss:
    """The end of a stream with failOnDataLoss=true."""
    ways = "; ".join(_some(f"{each.place}: {each.way_on}" for each in losses))
    return DataLoss(
        f"data was lost. {'. '.join(_some(map(str, losses)))}. To go on with what is there, set "
        f"failOnDataLoss=false ({ways}); to begin anew, use a new checkpoint location"
    )


def notice(loss: Loss) -> str:
    """What is said of it with failOnDataLoss=false."""
    return f"data was lost. {loss}; failOnDataLoss=false: {loss.way_on}"


def _some(sentences: Iterable[str]) -> list[str]:
    reports = list(sentences)
    return (
        reports
        if len(reports) <= _MOST_REPORTED
        else [*reports[:_MOST_REPORTED], f"and {len(reports) - _MOST_REPORTED} more partitions"]
    )


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
