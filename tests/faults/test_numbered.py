"""The books that the fault tests are judged by must notice every kind of loss."""

from __future__ import annotations

import pytest

from support.numbered import COMPACTED_KEYS, PartitionLedger


def books(sent: int, acknowledged: int, compacted: bool = False) -> PartitionLedger:
    return PartitionLedger("t", 0, compacted, sent, set(range(acknowledged)))


def test_what_was_acknowledged_and_more_is_fine() -> None:
    books(10, 5).check([(number, number) for number in range(7)])


@pytest.mark.parametrize(
    ("read", "complaint"),
    [
        ([(0, 0), (1, 1), (2, 3)], "acknowledged records are lost"),
        ([(0, 0), (1, 1), (2, 1), (3, 2), (4, 3)], "there twice"),
        ([(0, 1), (1, 0), (2, 2), (3, 3)], "follows"),
        ([(1, 0), (0, 1), (2, 2), (3, 3)], "offset 0 follows 1"),
        ([(0, 0), (1, 1), (2, 2), (3, 3), (4, 99)], "never sent"),
    ],
)
def test_losses_repetitions_and_disorder_are_noticed(read: list[tuple[int, int]], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        books(10, 4).check(read)


def test_of_a_compacted_partition_the_newest_of_each_key_is_wanted() -> None:
    newest = [(number, number) for number in range(20 - COMPACTED_KEYS, 20)]
    books(20, 20, compacted=True).check(newest)
    with pytest.raises(AssertionError, match="ends at"):
        books(20, 20, compacted=True).check(newest[:-1])
