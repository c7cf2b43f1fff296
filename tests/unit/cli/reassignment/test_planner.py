"""Plans of moves: even, spread over racks and hosts, and with no move too many."""

from __future__ import annotations

import random
import sys
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from braidlog.cli.reassignment.planner import Assignment, BrokerPlace, plan_moves
from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition


def brokers(*ids: int) -> dict[int, BrokerPlace]:
    return {each: BrokerPlace() for each in ids}


def after(current: Assignment, moved: Assignment) -> dict[TopicPartition, tuple[int, ...]]:
    return {**current, **moved}


def loads(assignment: Assignment, ids: list[int]) -> list[int]:
    count = Counter(broker for replicas in assignment.values() for broker in replicas)
    return [count[each] for each in ids]


def leaders(assignment: Assignment, ids: list[int]) -> list[int]:
    count = Counter(replicas[0] for replicas in assignment.values())
    return [count[each] for each in ids]


def copies(current: Assignment, moved: Assignment) -> int:
    return sum(len(set(replicas) - set(current[each])) for each, replicas in moved.items())


def at_least(current: Assignment, ids: list[int]) -> int:
    """Copies: what has to leave, and what is over a fair share, of which the fullest have the larger ones."""
    held = sorted(loads(current, ids), reverse=True)
    total = sum(len(replicas) for replicas in current.values())
    leaving = total - sum(held)
    share, larger = divmod(total, len(ids))
    return leaving + sum(max(0, each - share - (place < larger)) for place, each in enumerate(held))


def fewest(current: Assignment, ids: list[int]) -> int:
    """The same, exactly: replicas of a partition cannot share a broker. By the cheapest flow of them to the brokers."""
    total = sum(len(replicas) for replicas in current.values())
    even = 1_000_000
    # Room on an edge and what it costs; a way back is an edge as well.
    room: dict[object, dict[object, list[list[int]]]] = {}

    def edge(here: object, there: object, most: int, cost: int) -> None:
        out, back = [most, cost], [0, -cost]
        room.setdefault(here, {}).setdefault(there, []).append(out)
        room.setdefault(there, {}).setdefault(here, []).append(back)
        pairs[id(out)], pairs[id(back)] = back, out

    pairs: dict[int, list[int]] = {}
    for partition, replicas in current.items():
        edge("from", partition, len(replicas), 0)
        for broker in ids:
            edge(partition, broker, 1, 0 if broker in replicas else 1)
    for broker in ids:
        # A fair share comes first, and one more if need be.
        edge(broker, "to", total // len(ids), -even)
        edge(broker, "to", 1, 0)
    cost = 0
    for _ in range(total):
        costs: dict[object, int] = {"from": 0}
        came: dict[object, tuple[object, list[int]]] = {}
        changed = ["from"]
        for here in changed:
            for there, edges in room[here].items():
                for each in edges:
                    if each[0] > 0 and costs[here] + each[1] < costs.get(there, sys.maxsize):
                        costs[there] = costs[here] + each[1]
                        came[there] = here, each
                        changed.append(there)  # type: ignore[arg-type]
        here: object = "to"
        while here != "from":
            here, each = came[here]
            each[0] -= 1
            pairs[id(each)][0] += 1
        cost += costs["to"]
    return cost + even * len(ids) * (total // len(ids))


@st.composite
def situations(draw: st.DrawFn) -> tuple[Assignment, list[int]]:
    old = draw(st.integers(1, 6))
    new = draw(st.integers(1, 7))
    ids = sorted(draw(st.sets(st.integers(0, 8), min_size=new, max_size=new)))
    factor = draw(st.integers(1, min(old, new, 3)))
    rng = random.Random(draw(st.integers(0, 10_000)))
    counts = draw(st.lists(st.integers(1, 8), min_size=1, max_size=4))
    current = {
        TopicPartition(f"t{topic}", index): tuple(rng.sample(range(old), factor))
        for topic, count in enumerate(counts)
        for index in range(count)
    }
    return current, ids


@given(situations())
@settings(max_examples=300, deadline=None)
def test_a_plan_is_even_and_has_no_move_too_many(situation: tuple[Assignment, list[int]]) -> None:
    current, ids = situation
    moved = plan_moves(current, brokers(*ids))
    planned = after(current, moved)
    for each, replicas in planned.items():
        assert len(set(replicas)) == len(replicas) == len(current[each])
        assert set(replicas) <= set(ids)
    held = loads(planned, ids)
    assert max(held) - min(held) <= 1
    copied = copies(current, moved)
    assert copied == at_least(current, ids) or copied == fewest(current, ids)
    assert plan_moves(planned, brokers(*ids)) == {}, "what is even stays"


@given(situations(), st.integers(1, 4), st.integers(1, 3))
@settings(max_examples=300, deadline=None)
def test_replicas_share_racks_and_hosts_only_where_they_must(
    situation: tuple[Assignment, list[int]], racks: int, hosts: int
) -> None:
    current, ids = situation
    places = {each: BrokerPlace(f"rack{each % racks}", f"host{each % racks}-{each % hosts}") for each in ids}
    moved = plan_moves(current, places)
    planned = after(current, moved)
    in_racks = Counter(place.rack for place in places.values())
    on_hosts = Counter(place.host for place in places.values())
    for replicas in planned.values():
        assert len(set(replicas)) == len(replicas)
        assert set(replicas) <= set(ids)
        assert len({places[each].rack for each in replicas}) == min(len(replicas), len(in_racks))
        if len(replicas) <= len(on_hosts):
            assert len({places[each].host for each in replicas}) == len(replicas)
    # Brokers that stand in the same place, or in places of the same size, are as full as each other.
    for rack in in_racks:
        held = loads(planned, [each for each in ids if places[each].rack == rack])
        if len({on_hosts[places[each].host] for each in ids if places[each].rack == rack}) == 1:
            assert max(held) - min(held) <= 2
    assert copies(planned, plan_moves(planned, places)) == 0


def topic(*replicas: tuple[int, ...], name: str = "orders") -> dict[TopicPartition, tuple[int, ...]]:
    return {TopicPartition(name, index): each for index, each in enumerate(replicas)}


def test_a_new_broker_gets_its_share_of_every_topic() -> None:
    current = {
        **topic(*[(index % 3, (index + 1) % 3) for index in range(12)], name="a"),
        **topic(*[(index % 3, (index + 1) % 3) for index in range(12)], name="b"),
    }
    moved = plan_moves(current, brokers(0, 1, 2, 3))
    assert copies(current, moved) == 12
    planned = after(current, moved)
    assert loads(planned, [0, 1, 2, 3]) == [12, 12, 12, 12]
    assert leaders(planned, [0, 1, 2, 3]) == [6, 6, 6, 6]
    of_topics = Counter(each.topic for each, replicas in moved.items() if 3 in replicas)
    assert of_topics == {"a": 6, "b": 6}


def test_a_leaving_broker_keeps_nothing_and_the_others_move_nothing() -> None:
    current = topic((0, 1), (1, 2), (2, 0), (0, 1), (1, 2), (2, 0))
    moved = plan_moves(current, brokers(0, 1))
    assert {each: set(replicas) for each, replicas in moved.items()} == {
        TopicPartition("orders", index): {0, 1} for index in (1, 2, 4, 5)
    }
    assert leaders(after(current, moved), [0, 1]) == [3, 3]


def test_the_smaller_partition_moves() -> None:
    current = topic((0,), (0,), (0,))
    sizes = {TopicPartition("orders", 0): 900, TopicPartition("orders", 1): 100, TopicPartition("orders", 2): 500}
    moved = plan_moves(current, brokers(0, 1), sizes)
    assert moved == {TopicPartition("orders", 1): (1,)}


def test_racks_go_before_evenness_unless_they_are_left_out() -> None:
    places = {0: BrokerPlace("a"), 1: BrokerPlace("b"), 2: BrokerPlace("b"), 3: BrokerPlace("b")}
    current = topic((1, 2), (2, 3), (3, 1))
    moved = plan_moves(current, places)
    assert all(0 in replicas for replicas in moved.values())
    assert len(moved) == 3
    without = plan_moves(current, places, rack_aware=False)
    assert copies(current, without) == 1


def test_hosts_count_where_racks_are_not_known() -> None:
    places = {0: BrokerPlace(host="a"), 1: BrokerPlace(host="a"), 2: BrokerPlace(host="b")}
    moved = plan_moves(topic((0, 1)), places)
    ((replicas,),) = [tuple(moved.values())]
    assert 2 in replicas


def test_what_cannot_be_is_refused_with_what_to_do() -> None:
    with pytest.raises(UserError, match="at least one broker"):
        plan_moves(topic((0,)), {})
    with pytest.raises(UserError, match="name more brokers with --brokers"):
        plan_moves(topic((0, 1)), brokers(0))
    with pytest.raises(UserError, match="--disable-rack-aware"):
        plan_moves(topic((0, 1)), {0: BrokerPlace("a"), 1: BrokerPlace()})


def test_many_partitions_are_planned_in_no_time() -> None:
    """No cubic surprise: what a person waits for is the broker's answers."""
    rng = random.Random(7)
    current = {
        TopicPartition(f"t{number // 20}", number % 20): tuple(rng.sample(range(11), 3)) for number in range(3000)
    }
    places = {each: BrokerPlace(f"r{each % 3}", f"h{each}") for each in range(12)}
    moved = plan_moves(current, places)
    held = loads(after(current, moved), list(places))
    assert max(held) - min(held) <= 1
