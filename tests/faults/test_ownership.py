"""The notes that group tests are judged by must give away every broken promise."""

from __future__ import annotations

import pytest

from support.ownership import History, Note, owned, runs

T0, T1 = ("t", 0), ("t", 1)


def assigned(member: str, at: float, generation: int, *partitions: tuple[str, int]) -> Note:
    return Note("assigned", member, at, generation, partitions)


def read(member: str, at: float, generation: int, partition: int, first: int, end: int) -> Note:
    return Note("read", member, at, generation, offsets=(("t", partition, first, end),))


def committed(member: str, at: float, partition: int, end: int) -> Note:
    return Note("committed", member, at, offsets=(("t", partition, 0, end),))


GOOD = {
    "ann": [
        assigned("ann", 1, 1, T0, T1),
        read("ann", 2, 1, 0, 0, 5),
        read("ann", 2, 1, 1, 0, 3),
        committed("ann", 3, 0, 5),
    ],
    "bob": [assigned("bob", 4, 2, T0), read("bob", 5, 2, 0, 5, 8)],
}


def test_a_group_that_keeps_its_promises() -> None:
    history = History(GOOD)
    history.check({T0: 8, T1: 3})
    history.check_nothing_is_read_twice()
    assert history.committed() == {T0: 5}
    assert owned(GOOD["ann"]) == {T0, T1}
    assert owned([*GOOD["ann"], Note("revoked", "ann", 6, 1, (T0,))]) == {T1}


def test_two_owners_in_one_generation_are_noticed() -> None:
    for note in (assigned("cid", 4, 1, T0), read("cid", 4, 1, 1, 3, 4)):
        with pytest.raises(AssertionError, match="by both ann and cid"):
            History({**GOOD, "cid": [note]}).check_one_owner_in_a_generation()


def test_a_commit_that_is_forgotten_is_noticed() -> None:
    again = [assigned("bob", 4, 2, T0), read("bob", 5, 2, 0, 4, 8)]
    with pytest.raises(AssertionError, match="from 4 although 5 was committed"):
        History({**GOOD, "bob": again}).check_commits_are_honoured()
    early = [assigned("bob", 2.5, 2, T0), read("bob", 5, 2, 0, 4, 8)]
    History({**GOOD, "bob": early}).check_commits_are_honoured()  # given before the commit was acknowledged


def test_gaps_and_repetitions_are_noticed() -> None:
    with pytest.raises(AssertionError, match=r"1 of 9 records were not read, the first \[8\]"):
        History(GOOD).check({T0: 9})
    again = {**GOOD, "cid": [read("cid", 9, 3, 1, 2, 4)]}
    with pytest.raises(AssertionError, match="1 records were read twice"):
        History(again).check_nothing_is_read_twice()


def test_runs_follow_each_partition() -> None:
    assert runs([("t", 0, 4), ("t", 1, 0), ("t", 0, 5), ("t", 0, 7)]) == [
        ("t", 0, 4, 6), ("t", 1, 0, 1), ("t", 0, 7, 8)
    ]  # fmt: skip
