"""The judges of coordinators notice what they are there for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from support.simulation.coordinator_history import GroupHistory, TransactionHistory
from support.simulation.history import PartitionTarget
from support.simulation.invariants import InvariantBroken

HERE, THERE = PartitionTarget("work", b"1" * 16, 0), PartitionTarget("work", b"1" * 16, 1)


def a_transaction(commits: bool | None = True, ended: bool = True) -> TransactionHistory:
    history = TransactionHistory()
    history.began("teller/1")
    history.wrote("teller/1", HERE, ["teller/1/0.0", "teller/1/0.1"])
    history.wrote("teller/1", THERE, ["teller/1/1.0"])
    history.offset_sent("teller/1", "group", 7)
    if commits is not None:
        history.ending("teller/1", commits)
        if ended:
            history.ended("teller/1", commits)
    return history


WHOLE = {HERE: ["teller/1/0.0", "teller/1/0.1"], THERE: ["teller/1/1.0"]}


def test_a_sound_transaction_is_let_pass() -> None:
    a_transaction().check_visible(WHOLE, {"group": 7})
    a_transaction(commits=False).check_visible({HERE: [], THERE: []}, {})
    a_transaction(commits=None).check_visible({HERE: []}, {"group": -1})
    for visible, offset in ((WHOLE, 7), ({}, -1)):
        a_transaction(ended=False).check_visible(visible, {"group": offset})


@pytest.mark.parametrize(
    ("history", "visible", "offset", "reported"),
    [
        (a_transaction(), {HERE: WHOLE[HERE], THERE: []}, 7, "torn"),
        (a_transaction(), {}, 7, "cannot be read"),
        (a_transaction(), {HERE: [*WHOLE[HERE], "teller/1/0.0"], THERE: WHOLE[THERE]}, 7, "twice"),
        (a_transaction(), {HERE: WHOLE[HERE][::-1], THERE: WHOLE[THERE]}, 7, "written"),
        (a_transaction(), WHOLE, 6, "committed is 6"),
        (a_transaction(commits=False), WHOLE, -1, "was not committed"),
        (a_transaction(commits=None), WHOLE, -1, "was not committed"),
        (a_transaction(commits=False), {}, 7, "committed is 7"),
        (a_transaction(), {HERE: ["ghost/1/0.0"]}, 7, "nobody began"),
    ],
)
def test_a_broken_transaction_is_noticed(
    history: TransactionHistory, visible: dict[PartitionTarget, list[str]], offset: int, reported: str
) -> None:
    with pytest.raises(InvariantBroken, match=reported):
        history.check_visible(visible, {"group": offset})


def _two_owners(history: GroupHistory) -> None:
    history.owned("g", 3, "a", [0, 1])
    history.owned("g", 3, "b", [1])


def _another_share(history: GroupHistory) -> None:
    history.owned("g", 3, "a", [0])
    history.owned("g", 3, "a", [1])


def _lost_commit(history: GroupHistory) -> None:
    history.committing("g", 0, 5)
    history.committed("g", 0, 5)
    history.fetched("g", 0, 4, history.promised("g", 0))


def _made_up(history: GroupHistory) -> None:
    history.committing("g", 0, 5)
    history.fetched("g", 0, 6, history.promised("g", 0))


@pytest.mark.parametrize("happens", [_two_owners, _another_share, _lost_commit, _made_up])
def test_a_broken_group_is_noticed(happens: Callable[[GroupHistory], None]) -> None:
    with pytest.raises(InvariantBroken):
        happens(GroupHistory())
