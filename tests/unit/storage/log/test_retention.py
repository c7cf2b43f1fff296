from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from braidlog.config.log_settings import COMPACT, DELETE, LogSettings
from braidlog.storage.log.retention import RetentionPlan, plan_retention

NOW = 1_000_000


@dataclass
class Piece:
    base_offset: int
    size: int
    largest_timestamp: int


def pieces(*sizes_and_ages: tuple[int, int]) -> list[Piece]:
    """Segments of ten offsets each, by (size, age)."""
    return [Piece(index * 10, size, NOW - age) for index, (size, age) in enumerate(sizes_and_ages)]


def plan(
    segments: list[Piece],
    *,
    start: int = 0,
    high_watermark: int | None = None,
    policy: tuple[str, ...] = (DELETE,),
    retention_ms: int = -1,
    retention_bytes: int = -1,
) -> RetentionPlan:
    end = segments[-1].base_offset + (10 if segments[-1].size else 0)
    settings = LogSettings(cleanup_policy=policy, retention_ms=retention_ms, retention_bytes=retention_bytes)
    return plan_retention(segments, settings, start, end if high_watermark is None else high_watermark, end, NOW)


def test_by_time_the_oldest_run_goes() -> None:
    result = plan(pieces((5, 300), (5, 200), (5, 100), (5, 0)), retention_ms=150)
    assert (result.count, result.roll_first) == (2, False)
    assert result.reasons == ("2 older than retention.ms=150",)


def test_age_equal_to_the_limit_is_not_over_it() -> None:
    assert plan(pieces((5, 150), (5, 0)), retention_ms=150).is_empty


def test_a_young_segment_protects_older_ones_behind_it() -> None:
    assert plan(pieces((5, 0), (5, 900), (5, 0)), retention_ms=150).is_empty


def test_a_timestamp_in_the_future_holds_and_is_named() -> None:
    result = plan(pieces((5, 900), (5, -50), (5, 900), (5, 0)), retention_ms=150)
    assert result.count == 1
    assert result.held_by_future_timestamp == 10


def test_when_all_has_expired_a_fresh_segment_comes_first() -> None:
    result = plan(pieces((5, 300), (5, 200)), retention_ms=150)
    assert (result.count, result.roll_first) == (2, True)


def test_an_empty_active_segment_is_not_replaced_by_another() -> None:
    result = plan(pieces((5, 300), (0, 200)), retention_ms=150)
    assert (result.count, result.roll_first) == (1, False)
    assert plan(pieces((0, 900)), retention_ms=150).is_empty


def test_by_size_only_whole_segments_beyond_the_limit_go() -> None:
    sizes = pieces((100, 0), (100, 0), (100, 0))
    assert plan(sizes, retention_bytes=201).is_empty
    assert plan(sizes, retention_bytes=200).count == 1
    assert plan(sizes, retention_bytes=99).count == 2
    assert plan(sizes, retention_bytes=0).roll_first


def test_by_start_offset_a_segment_goes_when_the_next_begins_at_or_below_it() -> None:
    sizes = pieces((5, 0), (5, 0), (5, 0))
    assert plan(sizes, start=9).is_empty
    assert plan(sizes, start=10).count == 1
    assert plan(sizes, start=25).count == 2


def test_nothing_at_or_past_the_high_watermark_goes() -> None:
    sizes = pieces((5, 900), (5, 900), (5, 900))
    assert plan(sizes, retention_ms=1, high_watermark=19).count == 1
    assert plan(sizes, retention_ms=1, high_watermark=20).count == 2
    assert plan(sizes, start=20, high_watermark=5).is_empty


def test_compaction_alone_only_honours_the_start_offset() -> None:
    old = pieces((5, 900), (5, 900), (5, 900))
    assert plan(old, policy=(COMPACT,), retention_ms=1, retention_bytes=0).is_empty
    assert plan(old, policy=(COMPACT,), start=10).count == 1
    assert plan(old, policy=(COMPACT, DELETE), retention_ms=1).count == 3


@given(
    st.lists(st.tuples(st.integers(1, 50), st.integers(-100, 1000)), min_size=1, max_size=8),
    st.integers(0, 90),
    st.integers(-1, 1000),
    st.integers(-1, 300),
    st.integers(0, 90),
)
def test_a_plan_never_passes_the_high_watermark_and_never_takes_what_no_rule_names(
    shape: list[tuple[int, int]], start: int, retention_ms: int, retention_bytes: int, high_watermark: int
) -> None:
    segments = pieces(*shape)
    result = plan(
        segments,
        start=start,
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        high_watermark=high_watermark,
    )
    assert result.roll_first == (0 < result.count == len(segments))
    if result.count:
        upper = segments[result.count].base_offset if result.count < len(segments) else len(segments) * 10
        assert upper <= high_watermark
    for position in range(result.count):
        by_start = position + 1 < len(segments) and segments[position + 1].base_offset <= start
        bytes_after = sum(segment.size for segment in segments[position + 1 :])
        by_size = retention_bytes != -1 and bytes_after >= retention_bytes
        by_time = retention_ms != -1 and NOW - segments[position].largest_timestamp > retention_ms
        assert by_start or by_size or by_time
