"""Filters that Spark pushes down: what they leave to read, and which Spark has to look at again."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from pyspark_braidlog.source.filters import NOTHING_PUSHED, pushed
from pyspark_braidlog.source.offset_range import OffsetRange

TOPIC, PARTITION, OFFSET, TIMESTAMP = ("topic",), ("partition",), ("offset",), ("timestamp",)
WHOLE = OffsetRange("orders", 1, 10, 20)
NOON = datetime(2024, 5, 1, 12, 0, 0, 1500, tzinfo=UTC)
NOON_MS = 1_714_564_800_001


def handled(*filters: Filter) -> bool:
    return pushed(filters)[1] == []


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        (EqualTo(TOPIC, "orders"), True),
        (EqualNullSafe(TOPIC, "other"), False),
        (In(TOPIC, ("a", "orders")), True),
        (Not(In(TOPIC, ("a", "orders"))), False),
        (StringStartsWith(TOPIC, "ord"), True),
        (StringEndsWith(TOPIC, "ord"), False),
        (StringContains(TOPIC, "rde"), True),
        (Not(EqualTo(TOPIC, "orders")), False),
        (GreaterThan(TOPIC, "a"), True),
        (EqualTo(PARTITION, 1), True),
        (EqualTo(PARTITION, 2), False),
        (In(PARTITION, (2, 3)), False),
        (Not(EqualTo(PARTITION, 2)), True),
        (LessThan(PARTITION, 1), False),
        (LessThanOrEqual(PARTITION, 1), True),
        (GreaterThanOrEqual(PARTITION, 2), False),
    ],
)
def test_topics_and_partitions_are_left_out_whole(asked: Filter, kept: bool) -> None:
    narrowing, left = pushed([asked])
    assert narrowing.keeps("orders", 1) is kept
    assert left == []


@pytest.mark.parametrize(
    ("asked", "start", "end"),
    [
        (EqualTo(OFFSET, 12), 12, 13),
        (GreaterThan(OFFSET, 12), 13, 20),
        (GreaterThanOrEqual(OFFSET, 12), 12, 20),
        (LessThan(OFFSET, 12), 10, 12),
        (LessThanOrEqual(OFFSET, 12), 10, 13),
        (In(OFFSET, (12, 13, 14)), 12, 15),
    ],
)
def test_offsets_cut_ranges(asked: Filter, start: int, end: int) -> None:
    narrowing, left = pushed([asked])
    assert narrowing.narrowed(WHOLE) == WHOLE._replace(start=start, end=end)
    assert left == []


@pytest.mark.parametrize("asked", [LessThan(OFFSET, 5), GreaterThan(OFFSET, 30), EqualTo(OFFSET, -4), In(OFFSET, (1,))])
def test_offsets_out_of_range_leave_nothing(asked: Filter) -> None:
    assert pushed([asked])[0].narrowed(WHOLE).size == 0


def test_offsets_with_gaps_are_bounded_and_looked_at_again() -> None:
    asked = In(OFFSET, (12, 16))
    narrowing, left = pushed([asked])
    assert narrowing.narrowed(WHOLE) == WHOLE._replace(start=12, end=17)
    assert left == [asked]


@pytest.mark.parametrize(
    "asked",
    [
        GreaterThanOrEqual(TIMESTAMP, NOON),
        GreaterThan(TIMESTAMP, NOON),
        EqualTo(TIMESTAMP, NOON),
        In(TIMESTAMP, (datetime(2025, 1, 1, tzinfo=UTC), NOON)),
    ],
)
def test_times_are_bounded_from_below_and_looked_at_again(asked: Filter) -> None:
    narrowing, left = pushed([asked])
    # Rounded down to what records are counted in.
    assert narrowing.from_ms == NOON_MS
    assert left == [asked]


@pytest.mark.parametrize(
    "asked",
    [
        LessThan(TIMESTAMP, NOON),
        Not(EqualTo(TIMESTAMP, NOON)),
        GreaterThan(TIMESTAMP, datetime(1969, 1, 1, tzinfo=UTC)),
        GreaterThan(TIMESTAMP, datetime(2024, 1, 1)),
        IsNull(TIMESTAMP),
        IsNotNull(TIMESTAMP),
        EqualTo(("value",), b"x"),
        EqualTo(TOPIC, None),
        EqualTo(PARTITION, "1"),
        EqualTo(OFFSET, 1.5),
        In(PARTITION, (1, None)),
        In(OFFSET, ()),
        Not(EqualTo(OFFSET, 3)),
        StringStartsWith(PARTITION, "1"),
        IsNull(TOPIC),
        EqualTo(("headers", "key"), "x"),
    ],
)
def test_what_says_nothing_is_left_to_spark(asked: Filter) -> None:
    assert pushed([asked]) == (NOTHING_PUSHED, [asked])


def test_columns_that_are_never_null() -> None:
    assert handled(IsNotNull(TOPIC), IsNotNull(PARTITION), IsNotNull(OFFSET))


def test_all_have_to_hold() -> None:
    value = EqualTo(("key",), b"x")
    narrowing, left = pushed(
        [GreaterThan(OFFSET, 11), value, LessThan(OFFSET, 18), GreaterThan(OFFSET, 5), EqualTo(PARTITION, 1)]
    )
    assert narrowing.narrowed(WHOLE) == WHOLE._replace(start=12, end=18)
    assert narrowing.keeps("orders", 1)
    assert not narrowing.keeps("orders", 0)
    assert left == [value]


KINDS = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


@given(st.lists(st.tuples(st.sampled_from(KINDS), st.integers(-5, 30)), max_size=4))
def test_the_offsets_left_are_those_that_the_filters_are_true_of(asked: list[tuple[type[Filter], int]]) -> None:
    truth = {
        EqualTo: int.__eq__,
        GreaterThan: int.__gt__,
        GreaterThanOrEqual: int.__ge__,
        LessThan: int.__lt__,
        LessThanOrEqual: int.__le__,
    }
    narrowing, left = pushed([kind(OFFSET, value) for kind, value in asked])  # type: ignore[call-arg]
    work = narrowing.narrowed(WHOLE)
    wanted = [each for each in range(10, 20) if all(truth[kind](each, value) for kind, value in asked)]
    assert left == []
    assert list(range(work.start, work.end)) == wanted
    assert WHOLE.start <= work.start <= work.end <= WHOLE.end
