"""How ranges are shared among tasks."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pyspark_braidlog.source.offset_range import OffsetRange, split


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("t", partition, 100, 100 + size, "id") for partition, size in enumerate(sizes)]


def sizes(found: list[OffsetRange]) -> list[tuple[int, int]]:
    return [(each.partition, each.size) for each in found]


def test_one_task_a_partition_without_the_empty_ones() -> None:
    assert split(ranges(5, 0, 3)) == [OffsetRange("t", 0, 100, 105, "id"), OffsetRange("t", 2, 100, 103, "id")]


def test_enough_partitions_are_left_alone() -> None:
    assert split(ranges(500, 1), min_partitions=2) == ranges(500, 1)


def test_large_ranges_are_cut_for_a_minimum() -> None:
    assert sizes(split(ranges(100), 4)) == [(0, 25)] * 4
    # 1 of 101 is no share of its own: the other 3 are for the large one.
    assert sizes(split(ranges(100, 1), 4)) == [(0, 33), (0, 33), (0, 34), (1, 1)]


def test_no_more_tasks_than_records() -> None:
    assert sizes(split(ranges(2), 10)) == [(0, 1), (0, 1)]


def test_at_most_so_many_records_a_task() -> None:
    assert sizes(split(ranges(10, 3), None, 4)) == [(0, 3), (0, 3), (0, 4), (1, 3)]


def test_the_most_is_applied_before_the_least() -> None:
    assert len(split(ranges(10), 2, 3)) == 4
    assert len(split(ranges(10), 6, 5)) == 6


def test_nothing_stays_nothing() -> None:
    assert split([], 5, 5) == []
    assert split(ranges(0, 0), 5, 5) == []


@given(
    st.lists(st.integers(-3, 10_000), max_size=8),
    st.none() | st.integers(1, 50),
    st.none() | st.integers(1, 5000),
)
def test_pieces_cover_exactly_what_there_was(lengths: list[int], min_partitions: int | None, most: int | None) -> None:
    given_ranges = ranges(*lengths)
    pieces = split(given_ranges, min_partitions, most)
    assert pieces == split(given_ranges, min_partitions, most)
    assert all(piece.size > 0 and piece.topic_id == "id" for piece in pieces)
    assert most is None or all(piece.size <= most for piece in pieces)
    for whole in given_ranges:
        own = [piece for piece in pieces if piece.partition == whole.partition]
        if whole.size <= 0:
            assert own == []
            continue
        assert (own[0].start, own[-1].end) == (whole.start, whole.end)
        assert all(before.end == after.start for before, after in pairwise(own))
    # Shares are rounded to whole tasks, so every range may be half a task short.
    if most is None and min_partitions and sum(max(each, 0) for each in lengths) >= min_partitions:
        assert len(pieces) >= min_partitions - len(lengths)
