"""Which of a log's oldest segments have outlived their retention; pure, so that every rule can be tried on numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from braidlog.config.log_settings import LogSettings

UNLIMITED: Final = -1


class SegmentAge(Protocol):
    """What retention needs to know of a segment."""

    @property
    def base_offset(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def largest_timestamp(self) -> int:
        """Of its records; the file's modification time where no record carries one."""
        ...


@dataclass(frozen=True, slots=True)
class RetentionPlan:
    """The first `count` segments go; with `roll_first` a fresh active segment must exist before they do."""

    count: int
    roll_first: bool
    # One short clause per rule that bit, for the log line.
    reasons: tuple[str, ...]
    # Base offset of the first segment that is kept only because its newest record lies in the future.
    held_by_future_timestamp: int | None = None

    @property
    def is_empty(self) -> bool:
        return self.count == 0


def plan_retention(
    segments: Sequence[SegmentAge],
    settings: LogSettings,
    start_offset: int,
    high_watermark: int,
    end_offset: int,
    now_ms: int,
) -> RetentionPlan:
    """Start offset, then size, then time, each taking a run of the oldest segments that the one before left.

    No segment that reaches to or past the high watermark goes, so that the start offset can never pass it; and
    an empty active segment is not worth replacing by another one.
    """
    bound = _deletable_bound(segments, high_watermark, end_offset)
    reasons: list[str] = []

    gone = 0
    while gone < bound and gone + 1 < len(segments) and segments[gone + 1].base_offset <= start_offset:
        gone += 1
    if gone:
        reasons.append(f"{gone} below the log start offset {start_offset}")
    held_by_future: int | None = None

    if settings.deletes:
        if settings.retention_bytes != UNLIMITED:
            before = gone
            excess = sum(segment.size for segment in segments[gone:]) - settings.retention_bytes
            while gone < bound and excess - segments[gone].size >= 0:
                excess -= segments[gone].size
                gone += 1
            if gone > before:
                reasons.append(f"{gone - before} beyond retention.bytes={settings.retention_bytes}")
        if settings.retention_ms != UNLIMITED:
            before = gone
            while gone < bound and now_ms - segments[gone].largest_timestamp > settings.retention_ms:
                gone += 1
            if gone > before:
                reasons.append(f"{gone - before} older than retention.ms={settings.retention_ms}")
            if gone < len(segments) and segments[gone].largest_timestamp > now_ms:
                held_by_future = segments[gone].base_offset
    return RetentionPlan(gone, 0 < gone == len(segments), tuple(reasons), held_by_future)


def _deletable_bound(segments: Sequence[SegmentAge], high_watermark: int, end_offset: int) -> int:
    """How many of the oldest segments lie wholly below the high watermark."""
    count = len(segments)
    bound = 0
    for position in range(count):
        upper = segments[position + 1].base_offset if position + 1 < count else end_offset
        if upper > high_watermark:
            break
        if position + 1 == count and segments[position].size == 0:
            break
        bound += 1
    return bound
