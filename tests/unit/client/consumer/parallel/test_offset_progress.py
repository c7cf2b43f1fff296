"""The position of a partition whose records are finished out of order, against a model that looks at all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.client.consumer.parallel.offset_progress import OffsetProgress


@st.composite
def lives(draw: st.DrawFn) -> tuple[list[int], list[int], list[bool]]:
    """Rising offsets with gaps, the order in which they are finished, and when the next one is taken instead."""
    gaps = draw(st.lists(st.integers(1, 4), min_size=1, max_size=30))
    first = draw(st.integers(0, 100))
    offsets = [first + sum(gaps[:number]) for number in range(len(gaps))]
    return offsets, draw(st.permutations(range(len(offsets)))), draw(st.lists(st.booleans(), max_size=60))


@given(lives())
def test_the_position_is_the_first_undone_offset(life: tuple[list[int], list[int], list[bool]]) -> None:
    offsets, order, choices = life
    progress = OffsetProgress()
    taken: list[int] = []
    done: set[int] = set()
    waiting = list(offsets)
    turns = iter(choices)
    last = -1
    while len(done) < len(offsets):
        finishable = [offsets[rank] for rank in order if offsets[rank] in taken and offsets[rank] not in done]
        if waiting and (not finishable or next(turns, True)):
            offset = waiting.pop(0)
            progress.take(offset, leader_epoch=offset // 10)
            taken.append(offset)
        else:
            progress.finish(finishable[0])
            done.add(finishable[0])
        undone = [offset for offset in taken if offset not in done]
        assert progress.undone == len(undone)
        assert progress.position == (undone[0] if undone else taken[-1] + 1)
        assert progress.position >= last
        last = progress.position
        passed = [offset for offset in taken if offset < progress.position]
        assert progress.leader_epoch == (passed[-1] // 10 if passed else -1)
    assert progress.position == offsets[-1] + 1


def test_there_is_nothing_to_commit_until_something_is_done() -> None:
    progress = OffsetProgress()
    assert not progress.is_ahead
    progress.take(7)
    progress.take(8)
    assert not progress.is_ahead
    progress.finish(8)
    assert not progress.is_ahead
    progress.finish(7)
    assert progress.is_ahead
    assert progress.position == 9
    progress.committed = 9
    assert not progress.is_ahead


def test_an_offset_is_taken_once() -> None:
    progress = OffsetProgress()
    progress.take(7)
    assert not progress.may_take(7)
    with pytest.raises(ValueError, match="taken before"):
        progress.take(7)
    progress.finish(7)
    with pytest.raises(ValueError, match="taken before"):
        progress.take(6)
    progress.take(8)
