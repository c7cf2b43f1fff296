"""Where offsets go, and what files and durations say."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.cli import reset_plan
from braidlog.cli.reset_plan import Bounds, ResetTarget, duration_ms, plan_for, read_file, shift
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

PLACE = TopicPartition("orders", 0)
LIMITS = Bounds(start=10, end=50, at_time=30)


def planned(
    target: ResetTarget, committed: int | None = 20, limits: Bounds = LIMITS, in_file: int = 0
) -> tuple[int, int]:
    """The new offset, and how many remarks there were."""
    current = {} if committed is None else {PLACE: committed}
    (change,), notes = plan_for("g", target, current, {PLACE: limits}, {PLACE: in_file})
    assert (change.group, change.topic, change.partition) == ("g", "orders", 0)
    assert change.current_offset == committed
    return change.new_offset, len(notes)


@pytest.mark.parametrize(
    ("target", "offset", "remarks"),
    [
        (ResetTarget(reset_plan.TO_EARLIEST), 10, 0),
        (ResetTarget(reset_plan.TO_LATEST), 50, 0),
        (ResetTarget(reset_plan.TO_CURRENT), 20, 0),
        (ResetTarget(reset_plan.TO_OFFSET, 33), 33, 0),
        (ResetTarget(reset_plan.TO_OFFSET, 3), 10, 1),
        (ResetTarget(reset_plan.TO_OFFSET, 2**63 - 1), 50, 1),
        (ResetTarget(reset_plan.SHIFT_BY, 5), 25, 0),
        (ResetTarget(reset_plan.SHIFT_BY, -5), 15, 0),
        (ResetTarget(reset_plan.SHIFT_BY, -15), 10, 1),
        (ResetTarget(reset_plan.SHIFT_BY, 2**63 - 1), 50, 1),
        (ResetTarget(reset_plan.TO_TIME, 1), 30, 0),
    ],
)
def test_each_way(target: ResetTarget, offset: int, remarks: int) -> None:
    assert planned(target) == (offset, remarks)


def test_what_is_not_there() -> None:
    assert planned(ResetTarget(reset_plan.TO_CURRENT), committed=None) == (50, 0)
    # What is committed stays, even where the log has moved on.
    assert planned(ResetTarget(reset_plan.TO_CURRENT), committed=3) == (3, 0)
    assert planned(ResetTarget(reset_plan.TO_TIME, 1), limits=Bounds(10, 50, -1)) == (50, 1)
    assert planned(ResetTarget(reset_plan.FROM_FILE), in_file=44) == (44, 0)
    assert planned(ResetTarget(reset_plan.FROM_FILE), in_file=51) == (50, 1)
    with pytest.raises(UserError, match="group g has committed nothing for orders-0"):
        planned(ResetTarget(reset_plan.SHIFT_BY, 1), committed=None)


@given(
    kind=st.sampled_from([reset_plan.TO_OFFSET, reset_plan.SHIFT_BY, reset_plan.TO_TIME, reset_plan.FROM_FILE]),
    number=st.integers(-(2**63), 2**63 - 1),
    start=st.integers(0, 100),
    size=st.integers(0, 100),
    committed=st.integers(0, 2**63 - 1),
)
def test_a_planned_offset_is_always_one_that_the_partition_has(
    kind: str, number: int, start: int, size: int, committed: int
) -> None:
    new, _ = planned(ResetTarget(kind, number), committed, Bounds(start, start + size), abs(number))
    assert start <= new <= start + size


def test_files() -> None:
    assert read_file(["orders,0,3\n", "\n", " orders , 1 , 4 \n"], "f") == {
        None: {PLACE: 3, TopicPartition("orders", 1): 4}
    }
    assert read_file(['"a,b",orders,0,3\n', "g,orders,0,5\n"], "f") == {"a,b": {PLACE: 3}, "g": {PLACE: 5}}


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ("", "f has no lines"),
        ("orders,0\n", "line 1: 2 columns"),
        ("orders,0,1\norders,x,1\n", "line 2: 'x' is not a partition"),
        ("orders,0,1.5\n", "line 1: '1.5' is not an offset"),
        ("orders,0,9223372036854775808\n", "line 1: '9223372036854775808' is not an offset"),
        ("orders,2147483648,1\n", "line 1: '2147483648' is not a partition"),
        (",orders,0,1\n", "line 1: an empty name"),
        ("orders,0,\0\n", "line 1: "),
    ],
)
def test_what_is_no_such_file(text: str, reported: str) -> None:
    with pytest.raises(UserError, match=reported):
        read_file(text.splitlines(keepends=True), "f")


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "offsets.csv"
    path.write_bytes(b"t,0,1\n\xff\xfe,0,1\n")
    with path.open(encoding="utf-8", newline="") as lines, pytest.raises(UserError, match="x is not UTF-8 text; give"):
        read_file(lines, "x")


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT30M", 1_800_000),
        ("P1D", 86_400_000),
        ("P1DT2H3M4.5S", 93_784_500),
        ("P2W", 1_209_600_000),
        ("pt1h", 3_600_000),
        ("PT0S", 0),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "P1DT", "1h", "PT1", "-PT1H", "P1Y", "P1M", "PT1H ago", "PT٣H"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="ISO 8601 duration"):
        duration_ms(text)


def test_shifts() -> None:
    assert [shift(text) for text in ("5", "+5", "-5", "0")] == [5, 5, -5, 0]
    for text in ("", "-", "1.5", "five", "9" * 20, "9" * 5000):
        with pytest.raises(argparse.ArgumentTypeError):
            shift(text)
