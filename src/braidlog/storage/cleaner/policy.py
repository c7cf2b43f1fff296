"""Which log to compact next and up to where; pure, over the facts of the logs at one moment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from braidlog.config.log_settings import MAX_LONG, LogSettings
from braidlog.core.types import TopicPartition

MAX_RELATIVE_OFFSET: Final = 2**31 - 1


class SegmentSize(Protocol):
    """What the cleaner needs to know of a segment to plan."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def largest_timestamp(self) -> int: ...


@dataclass(frozen=True, slots=True)
class CleanableLog:
    """The state of one compacted log at the moment of the decision."""

    partition: TopicPartition
    settings: LogSettings
    # Oldest first, the active one last.
    segments: Sequence[SegmentSize]
    start_offset: int
    end_offset: int
    # Nothing at or past it may be compacted: a transaction there is still open.
    last_stable_offset: int
    # From the cleaner checkpoint; none if this log was never compacted.
    checkpointed_dirty_offset: int | None
    # Timestamp of a segment's first batch; only asked where max.compaction.lag.ms is set, because it reads the file.
    first_timestamp: Callable[[SegmentSize], int]


@dataclass(frozen=True, slots=True)
class LogToClean:
    """Compact what lies in `first_dirty .. first_uncleanable`, together with the clean part before it."""

    partition: TopicPartition
    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    dirty_bytes: int
    # Set where the log has waited longer than max.compaction.lag.ms.
    overdue: bool = False
    # The checkpoint lay outside the log and must be rewritten even if nothing is compacted.
    checkpoint_was_invalid: bool = False

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0


def assess(log: CleanableLog, now_ms: int) -> LogToClean:
    """How dirty a log is and what could be compacted of it now."""
    first_dirty, invalid = _first_dirty(log)
    first_uncleanable = max(_first_uncleanable(log, first_dirty, now_ms), first_dirty)
    clean_bytes = 0
    dirty_bytes = 0
    boundary = log.segments[-1].base_offset
    for position, segment in enumerate(log.segments[:-1]):
        # The segment that holds the first uncleanable offset is left alone as a whole.
        next_base = log.segments[position + 1].base_offset
        if segment.base_offset >= first_uncleanable or next_base > first_uncleanable:
            boundary = segment.base_offset
            break
        if next_base <= first_dirty:
            clean_bytes += segment.size
        else:
            dirty_bytes += segment.size
    return LogToClean(
        log.partition,
        first_dirty,
        max(boundary, first_dirty),
        clean_bytes,
        dirty_bytes,
        _is_overdue(log, first_dirty, now_ms),
        invalid,
    )


def choose_filthiest(logs: Iterable[CleanableLog], now_ms: int) -> LogToClean | None:
    """The log with the largest share of dirty bytes among those that are due, by ratio or by age."""
    best: LogToClean | None = None
    for log in logs:
        task = assess(log, now_ms)
        if task.dirty_bytes == 0:
            continue
        if not task.overdue and task.dirty_ratio <= log.settings.min_cleanable_dirty_ratio:
            continue
        if best is None or task.dirty_ratio > best.dirty_ratio:
            best = task
    return best


def _first_dirty(log: CleanableLog) -> tuple[int, bool]:
    """Where cleaning resumes, and whether the checkpoint had to be overruled because the log was cut on either side."""
    checkpointed = log.checkpointed_dirty_offset
    if checkpointed is None:
        return log.start_offset, False
    if log.start_offset <= checkpointed <= log.end_offset:
        return checkpointed, False
    return log.start_offset, True


def _first_uncleanable(log: CleanableLog, first_dirty: int, now_ms: int) -> int:
    bound = min(log.last_stable_offset, log.segments[-1].base_offset)
    lag = log.settings.min_compaction_lag_ms
    if lag > 0:
        for segment in _dirty_inactive(log, first_dirty):
            if segment.largest_timestamp > now_ms - lag:
                return min(bound, segment.base_offset)
    return bound


def _is_overdue(log: CleanableLog, first_dirty: int, now_ms: int) -> bool:
    lag = max(log.settings.max_compaction_lag_ms, log.settings.min_compaction_lag_ms)
    if lag >= MAX_LONG:
        return False
    stamps = [log.first_timestamp(segment) for segment in _dirty_inactive(log, first_dirty)]
    return any(0 < stamp < now_ms - lag for stamp in stamps)


def _dirty_inactive(log: CleanableLog, first_dirty: int) -> list[SegmentSize]:
    segments = log.segments
    return [
        segments[position] for position in range(len(segments) - 1) if segments[position + 1].base_offset > first_dirty
    ]


@dataclass(frozen=True, slots=True)
class SourceSegment:
    """A segment that is about to be compacted, by what it weighs."""

    base_offset: int
    size: int
    index_size: int
    time_index_size: int
    last_modified_ms: int


def group_segments(
    segments: Sequence[SourceSegment], max_bytes: int, max_index_bytes: int, first_uncleanable: int
) -> list[list[SourceSegment]]:
    """Runs of neighbours that become one segment each, so that compaction does not leave ever more small files.

    The bounds are those of a segment: its size, the size of each index, and offsets that fit 31 bits from its base.
    """
    groups: list[list[SourceSegment]] = []
    bytes_in_group = index_bytes = time_index_bytes = 0
    for position, segment in enumerate(segments):
        upper = segments[position + 1].base_offset if position + 1 < len(segments) else first_uncleanable
        fits = (
            bool(groups)
            and bytes_in_group + segment.size <= max_bytes
            and index_bytes + segment.index_size <= max_index_bytes
            and time_index_bytes + segment.time_index_size <= max_index_bytes
            and (segment.size == 0 or upper - 1 - groups[-1][0].base_offset <= MAX_RELATIVE_OFFSET)
        )
        if fits:
            groups[-1].append(segment)
            bytes_in_group += segment.size
            index_bytes += segment.index_size
            time_index_bytes += segment.time_index_size
        else:
            groups.append([segment])
            bytes_in_group, index_bytes, time_index_bytes = segment.size, segment.index_size, segment.time_index_size
    return groups
