from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from braidlog.coordinator.deadlines import Deadlines

moves = st.lists(
    st.tuples(
        st.sampled_from(["set", "set", "set", "cancel", "due"]), st.sampled_from("abcd"), st.integers(0, 20).map(float)
    ),
    max_size=60,
)


def test_what_is_due_comes_earliest_first_and_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("late", 3.0)
    deadlines.set("early", 1.0)
    deadlines.set("later", 4.0)
    assert deadlines.next() == 1.0
    assert deadlines.pop_due(0.9) == []
    assert deadlines.pop_due(3.0) == ["early", "late"]
    assert deadlines.pop_due(3.0) == []
    assert deadlines.next() == 4.0
    assert len(deadlines) == 1


def test_one_that_was_moved_counts_at_its_new_time_only() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("moved", 1.0)
    deadlines.set("moved", 5.0)
    assert deadlines.pop_due(4.0) == []
    deadlines.set("moved", 2.0)
    assert deadlines.get("moved") == 2.0
    assert deadlines.pop_due(4.0) == ["moved"]
    assert deadlines.pop_due(9.0) == []


def test_one_that_was_cancelled_may_be_set_again() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("gone", 1.0)
    deadlines.cancel("gone")
    deadlines.cancel("never there")
    assert deadlines.next() is None
    assert "gone" not in deadlines
    deadlines.set("gone", 2.0)
    assert deadlines.pop_due(1.5) == []
    assert deadlines.pop_due(2.0) == ["gone"]


def test_a_deadline_that_is_moved_all_the_time_costs_no_memory() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for second in range(10_000):
        deadlines.set("heartbeat", second + 10.0)
        deadlines.pop_due(float(second))
        assert len(deadlines._heap) <= 2


def test_deadlines_that_are_set_and_cancelled_far_ahead_cost_no_memory() -> None:
    deadlines: Deadlines[int] = Deadlines()
    deadlines.set(-1, 5.0)
    for key in range(10_000):
        deadlines.set(key, 1e9)
        deadlines.cancel(key)
        assert len(deadlines._heap) <= 100
    assert deadlines.pop_due(2e9) == [-1]


@given(moves)
def test_any_sequence_gives_what_a_plain_dictionary_gives(sequence: list[tuple[str, str, float]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, float] = {}
    for move, key, at in sequence:
        if move == "set":
            deadlines.set(key, at)
            model[key] = at
        elif move == "cancel":
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            due = deadlines.pop_due(at)
            assert sorted(due) == sorted(name for name, time in model.items() if time <= at)
            assert [model[name] for name in due] == sorted(model[name] for name in due)
            for name in due:
                del model[name]
        assert deadlines.next() == min(model.values(), default=None)
        assert len(deadlines) == len(model)
