"""Limits of a batch: the options', the engine's, and both at once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from braidlog import TopicPartition
from pyspark_braidlog.source.admission import Admission, shares, within_bytes

T0, T1, T2 = (TopicPartition("t", each) for each in range(3))
NOTHING = {T0: 0, T1: 0}


class Clock:
    def __init__(self) -> None:
        self.now = 5000.0

    def __call__(self) -> float:
        return self.now


def test_without_options_all_there_is_is_read() -> None:
    admission = Admission()
    assert admission.own_limit == ReadAllAvailable()
    assert admission.end(NOTHING, {T0: 7, T1: 9}, admission.own_limit) == {T0: 7, T1: 9}


def test_at_most() -> None:
    admission = Admission(most=10)
    assert admission.own_limit == ReadMaxRows(10)
    assert admission.end(NOTHING, {T0: 30, T1: 10}, ReadMaxRows(10)) == {T0: 7, T1: 2}


def test_all_available_from_the_engine_goes_before_the_options() -> None:
    admission = Admission(most=10, least=5, max_delay_s=60)
    admission.end(NOTHING, NOTHING, admission.own_limit)
    assert admission.end(NOTHING, {T0: 3, T1: 0}, ReadAllAvailable()) == {T0: 3, T1: 0}
    assert admission.end(NOTHING, {T0: 300, T1: 0}, ReadAllAvailable()) == {T0: 300, T1: 0}


def test_another_limit_of_the_engine_goes_before_the_options() -> None:
    assert Admission(most=10).end(NOTHING, {T0: 300, T1: 0}, ReadMaxRows(20)) == {T0: 20, T1: 0}


def test_at_least_waits_for_records_or_for_the_delay() -> None:
    clock = Clock()
    admission = Admission(least=10, max_delay_s=60, now=clock)
    assert admission.own_limit == ReadMinRows(10)
    few, enough = {T0: 4, T1: 5}, {T0: 5, T1: 5}
    # The first is not put off: nobody knows for how long the records have been waiting.
    assert admission.end(NOTHING, few, ReadMinRows(10)) == few
    assert admission.end(NOTHING, few, ReadMinRows(10)) == NOTHING
    assert admission.end(NOTHING, enough, ReadMinRows(10)) == enough
    clock.now += 59.9
    assert admission.end(NOTHING, few, ReadMinRows(10)) == NOTHING
    clock.now += 0.1
    assert admission.end(NOTHING, few, ReadMinRows(10)) == few
    assert admission.end(NOTHING, few, ReadMinRows(10)) == NOTHING


def test_least_and_most_together() -> None:
    admission = Admission(least=10, most=20, max_delay_s=60)
    limit = admission.own_limit
    assert limit == ReadMaxRows(20)
    admission.end(NOTHING, NOTHING, limit)
    assert admission.end(NOTHING, {T0: 9, T1: 0}, limit) == NOTHING
    assert admission.end(NOTHING, {T0: 10, T1: 0}, limit) == {T0: 10, T1: 0}
    assert admission.end(NOTHING, {T0: 100, T1: 0}, limit) == {T0: 20, T1: 0}


def test_few_records_are_read_when_no_more_will_come() -> None:
    admission = Admission(least=10, max_delay_s=60)
    admission.end(NOTHING, NOTHING, admission.own_limit)
    few = {T0: 4, T1: 0}
    assert admission.end(NOTHING, few, admission.own_limit) == NOTHING
    assert admission.end(NOTHING, few, admission.own_limit, is_last_chance=True) == few


def test_small_partitions_do_not_starve() -> None:
    assert shares({T0: 0, T1: 100, T2: 5}, {T0: 10_000, T1: 101, T2: 5}, 10) == {T0: 9, T1: 101, T2: 5}


_places = [TopicPartition("t", each) for each in range(6)]
_sizes = st.dictionaries(st.sampled_from(_places), st.integers(0, 2**62), min_size=1)


@given(_sizes, _sizes, st.integers(1, 2**62))
def test_shares_move_on_within_what_there_is(
    begins: dict[TopicPartition, int], sizes: dict[TopicPartition, int], most: int
) -> None:
    begin = {place: begins.get(place, 0) for place in sizes}
    available = {place: begin[place] + size for place, size in sizes.items()}
    end = shares(begin, available, most)
    assert all(begin[place] <= end[place] <= available[place] for place in sizes)
    assert all(end[place] > begin[place] for place, size in sizes.items() if size)
    # More than the limit is read only for the sake of partitions that would get nothing.
    assert sum(end[place] - begin[place] for place in sizes) <= most + len(sizes)


@given(_sizes, st.integers(1, 100))
def test_batch_by_batch_everything_is_read(sizes: dict[TopicPartition, int], batches: int) -> None:
    begin = dict.fromkeys(sizes, 0)
    most = max(1, -(-sum(sizes.values()) // batches))
    # Rounding down leaves up to half of a small limit unused.
    for _ in range(2 * batches):
        begin = shares(begin, sizes, most)
    assert begin == sizes


class Log:
    """Sizes of records by offset; counts the questions."""

    def __init__(self, *spans: tuple[int, float]) -> None:
        # From which offset on records have which size, in every partition.
        self.spans = spans
        self.asked = 0

    def size_at(self, offset: int) -> float:
        return [size for start, size in self.spans if start <= offset][-1]

    def __call__(self, at: dict[TopicPartition, int]) -> dict[TopicPartition, float]:
        self.asked += 1
        return {place: self.size_at(offset) for place, offset in at.items()}

    def size(self, begin: dict[TopicPartition, int], end: dict[TopicPartition, int]) -> float:
        return sum(self.size_at(offset) for place in end for offset in range(begin[place], end[place]))


class TestBytes:
    def test_all_there_is_if_it_is_little(self) -> None:
        log = Log((0, 100.0))
        assert within_bytes(NOTHING, {T0: 30, T1: 10}, 4000, log) == {T0: 30, T1: 10}
        assert within_bytes(NOTHING, NOTHING, 1, log) == NOTHING

    def test_about_so_many_bytes_divided_by_what_each_has(self) -> None:
        assert within_bytes(NOTHING, {T0: 3000, T1: 1000}, 40_000, Log((0, 100.0))) == {T0: 300, T1: 100}

    def test_none_goes_away_empty_and_a_record_may_be_larger_than_the_limit(self) -> None:
        assert within_bytes(NOTHING, {T0: 3000, T1: 10}, 1, Log((0, 100.0))) == {T0: 1, T1: 1}

    @pytest.mark.parametrize("change", [1, 10, 90, 500, 9000])
    def test_large_records_behind_small_ones_are_seen_before_they_are_read(self, change: int) -> None:
        log = Log((0, 10.0), (change, 100_000.0))
        end = within_bytes(NOTHING, {T0: 10_000, T1: 0}, 1_000_000, log)
        # What was not estimated to be too much: a tenth over, beside the error of a straight line between two sizes.
        assert 0 < log.size(NOTHING, end) <= 2_300_000
        assert log.asked <= 5

    def test_small_records_behind_large_ones_come_with_the_next_batches(self) -> None:
        log = Log((0, 100_000.0), (50, 10.0))
        begin, batches = dict(NOTHING), 0
        while begin != {T0: 10_000, T1: 0}:
            end = within_bytes(begin, {T0: 10_000, T1: 0}, 1_000_000, log)
            assert log.size(begin, end) <= 2_300_000
            begin, batches = end, batches + 1
        assert batches < 20

    def test_partitions_that_cannot_be_told_are_left_to_the_others(self) -> None:
        assert within_bytes(NOTHING, {T0: 100, T1: 100}, 500, lambda at: {T0: 10.0} if T0 in at else {}) == {
            T0: 50,
            T1: 50,
        }

    def test_with_the_other_limits(self) -> None:
        clock = Clock()
        log = Log((0, 10.0))
        both = Admission(most=50, most_bytes=10_000, now=clock, bytes_per_offset=log)
        assert both.own_limit == ReadMaxRows(50)
        assert both.end(NOTHING, {T0: 100, T1: 100}, ReadMaxRows(50)) == {T0: 25, T1: 25}
        fewer = Admission(most=50, most_bytes=100, now=clock, bytes_per_offset=log)
        assert fewer.end(NOTHING, {T0: 100, T1: 100}, ReadMaxRows(50)) == {T0: 5, T1: 5}
        alone = Admission(most_bytes=100, least=3, max_delay_s=60, now=clock, bytes_per_offset=log)
        assert alone.own_limit == ReadMaxBytes(100)
        assert alone.end(NOTHING, {T0: 20, T1: 20}, alone.own_limit) == {T0: 5, T1: 5}
        assert alone.end({T0: 5, T1: 5}, {T0: 6, T1: 6}, alone.own_limit) == {T0: 5, T1: 5}
        assert alone.end({T0: 5, T1: 5}, {T0: 6, T1: 6}, alone.own_limit, is_last_chance=True) == {T0: 6, T1: 6}
        # Once: everything, whatever the options say.
        assert alone.end(NOTHING, {T0: 100, T1: 100}, ReadAllAvailable()) == {T0: 100, T1: 100}
