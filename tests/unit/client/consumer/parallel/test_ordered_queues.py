"""Lanes: of each one piece of work at a time, in the order in which it came."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from braidlog.client.consumer.parallel.ordered_queues import OrderedQueues

Piece = tuple[str | None, int]


@given(
    st.lists(st.sampled_from(["a", "b", "c", None]), max_size=40),
    st.lists(st.integers(0, 10), max_size=100),
)
def test_lanes_keep_their_order_and_lose_nothing(names: list[str | None], choices: list[int]) -> None:
    queues: OrderedQueues[Piece] = OrderedQueues()
    waiting = [(name, number) for number, name in enumerate(names)]
    under_way: list[Piece] = []
    begun: dict[str | None, list[int]] = defaultdict(list)
    turns = iter(choices)
    while waiting or under_way or queues.ready:
        turn = next(turns, 2)
        if turn % 3 == 0 and waiting:
            piece = waiting.pop(0)
            queues.add(piece[0], piece)
        elif turn % 3 == 1 and under_way:
            queues.release(under_way.pop(turn % len(under_way))[0])
        elif (taken := queues.take()) is not None:
            under_way.append(taken)
            begun[taken[0]].append(taken[1])
            held = [name for name, _ in under_way if name is not None]
            assert len(held) == len(set(held))
        elif under_way:
            queues.release(under_way.pop(0)[0])
        elif waiting:
            piece = waiting.pop(0)
            queues.add(piece[0], piece)
    assert queues.is_empty
    for name in ("a", "b", "c", None):
        numbers = [number for number, each in enumerate(names) if each == name]
        assert (begun[name] if name is not None else sorted(begun[name])) == numbers


def test_work_of_another_lane_does_not_wait() -> None:
    queues: OrderedQueues[str] = OrderedQueues()
    for key, work in (("a", "a1"), ("a", "a2"), ("b", "b1"), (None, "x"), (None, "y")):
        queues.add(key, work)
    assert [queues.take() for _ in range(5)] == ["a1", "b1", "x", "y", None]
    queues.release("a")
    assert queues.take() == "a2"
    queues.release("a")
    queues.release("b")
    assert queues.is_empty
