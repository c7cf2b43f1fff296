"""What `braidlog delete-records` would delete."""

from __future__ import annotations

import pytest

from braidlog.cli.commands.delete_records import END, plan
from braidlog.cli.reset_plan import Bounds
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition

PLACE = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("offset", "bounds", "new_earliest"),
    [
        pytest.param(7, Bounds(5, 10, -1), 7, id="an offset"),
        pytest.param(3, Bounds(5, 10, -1), 5, id="an offset before the start"),
        pytest.param(END, Bounds(5, 10, -1), 10, id="the end"),
        pytest.param(None, Bounds(5, 10, -1), 10, id="all, or all are older"),
        pytest.param(None, Bounds(5, 10, 8), 8, id="a time"),
        pytest.param(None, Bounds(5, 10, 12), 10, id="a time whose first record is newer than the end"),
    ],
)
def test_where_a_partition_would_start(offset: int | None, bounds: Bounds, new_earliest: int) -> None:
    (deletion,) = plan({PLACE: offset}, {PLACE: bounds})
    assert (deletion.new_earliest, deletion.records) == (new_earliest, new_earliest - bounds.start)


def test_an_offset_beyond_the_end_is_a_mistake() -> None:
    with pytest.raises(UserError, match="ends at offset 10, before 11"):
        plan({PLACE: 11}, {PLACE: Bounds(5, 10, -1)})
