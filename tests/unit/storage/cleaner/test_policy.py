from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from braidlog.config.log_settings import COMPACT, LogSettings
from braidlog.core.types import TopicPartition
from braidlog.storage.cleaner.policy import (
    MAX_RELATIVE_OFFSET,
    CleanableLog,
    SegmentSize,
    SourceSegment,
    assess,
    choose_filthiest,
    group_segments,
)

NOW = 1_000_000


@dataclass
class Piece:
    base_offset: int
    size: int = 100
    largest_timestamp: int = 0


def first_timestamp(segment: SegmentSize) -> int:
    return segment.largest_timestamp


def log(
    *segments: Piece,
    dirty: int | None = None,
    start: int = 0,
    stable: int | None = None,
    name: str = "t",
    settings: LogSettings | None = None,
) -> CleanableLog:
    end = segments[-1].base_offset + 10
    return CleanableLog(
        TopicPartition(name, 0),
        settings or LogSettings(cleanup_policy=(COMPACT,)),
        segments,
        start,
        end,
        end if stable is None else stable,
        dirty,
        first_timestamp,
    )


def test_the_active_segment_is_never_cleaned() -> None:
    task = assess(log(Piece(0), Piece(10), Piece(20)), NOW)
    assert (task.first_dirty, task.first_uncleanable) == (0, 20)
    assert (task.clean_bytes, task.dirty_bytes, task.dirty_ratio) == (0, 200, 1.0)


def test_what_was_cleaned_counts_as_clean() -> None:
    task = assess(log(Piece(0), Piece(10), Piece(20), dirty=10), NOW)
    assert (task.clean_bytes, task.dirty_bytes, task.dirty_ratio) == (100, 100, 0.5)


def test_an_open_transaction_stops_before_its_segment() -> None:
    task = assess(log(Piece(0), Piece(10), Piece(20), stable=15), NOW)
    assert (task.first_uncleanable, task.dirty_bytes) == (10, 100)


def test_records_younger_than_the_lag_stay() -> None:
    settings = LogSettings(cleanup_policy=(COMPACT,), min_compaction_lag_ms=100)
    old, young = NOW - 101, NOW - 99
    task = assess(
        log(Piece(0, 100, old), Piece(10, 100, young), Piece(20, 100, old), Piece(30), settings=settings), NOW
    )
    assert task.first_uncleanable == 10


@pytest.mark.parametrize("dirty", [3, 99])
def test_a_checkpoint_outside_the_log_starts_over(dirty: int) -> None:
    task = assess(log(Piece(5), Piece(10), Piece(20), start=5, dirty=dirty), NOW)
    assert task.first_dirty == 5
    assert task.checkpoint_was_invalid


def test_a_log_is_due_by_its_dirty_ratio() -> None:
    half = log(Piece(0), Piece(10), Piece(20), dirty=10)
    assert choose_filthiest([half], NOW) is None
    eager = replace(half, settings=LogSettings(cleanup_policy=(COMPACT,), min_cleanable_dirty_ratio=0.4))
    assert choose_filthiest([eager], NOW) is not None


def test_a_log_is_due_when_it_has_waited_too_long() -> None:
    settings = LogSettings(cleanup_policy=(COMPACT,), min_cleanable_dirty_ratio=1.0, max_compaction_lag_ms=500)
    waiting = log(Piece(0, 100, 1), Piece(10, 100, NOW - 501), Piece(20), dirty=10, settings=settings)
    task = choose_filthiest([waiting], NOW)
    assert task is not None
    assert task.overdue
    assert choose_filthiest([waiting], NOW - 1) is None


def test_the_filthiest_comes_first() -> None:
    clean = log(Piece(0, 900), Piece(10, 1000), Piece(20), dirty=10, name="cleaner")
    dirty = log(Piece(0, 100), Piece(10, 1000), Piece(20), dirty=10, name="filthier")
    task = choose_filthiest([clean, dirty], NOW)
    assert task is not None
    assert task.partition.topic == "filthier"


def test_nothing_dirty_means_nothing_to_do() -> None:
    settings = LogSettings(cleanup_policy=(COMPACT,), min_cleanable_dirty_ratio=0.0)
    assert choose_filthiest([log(Piece(0), Piece(10), dirty=10, settings=settings)], NOW) is None
    assert choose_filthiest([], NOW) is None


def source(base_offset: int, size: int = 10, index: int = 1, time_index: int = 1) -> SourceSegment:
    return SourceSegment(base_offset, size, index, time_index, 0)


def bases(groups: list[list[SourceSegment]]) -> list[list[int]]:
    return [[segment.base_offset for segment in group] for group in groups]


def test_groups_respect_the_size_of_a_segment() -> None:
    segments = [source(0), source(10), source(20, size=25), source(30)]
    assert bases(group_segments(segments, 30, 100, 40)) == [[0, 10], [20], [30]]


def test_groups_respect_the_size_of_each_index() -> None:
    assert bases(group_segments([source(0, index=6), source(10, index=6)], 99, 10, 20)) == [[0], [10]]
    assert bases(group_segments([source(0, time_index=6), source(10, time_index=6)], 99, 10, 20)) == [[0], [10]]


def test_groups_respect_offsets_of_31_bits() -> None:
    far = MAX_RELATIVE_OFFSET
    segments = [source(0), source(10), source(far - 5)]
    assert bases(group_segments(segments, 1000, 100, far + 2)) == [[0, 10], [far - 5]]
    assert bases(group_segments(segments, 1000, 100, far + 1)) == [[0, 10, far - 5]]


def test_an_empty_segment_joins_however_far_it_is() -> None:
    segments = [source(0), source(MAX_RELATIVE_OFFSET + 100, size=0)]
    assert len(group_segments(segments, 1000, 100, MAX_RELATIVE_OFFSET + 200)) == 1
