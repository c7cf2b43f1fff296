from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.cluster.image import BrokerInfo
from braidlog.controller.placement import assign, check_assignments, check_replicas, shared_hosts
from braidlog.core.protocol_errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from braidlog.core.types import BrokerId
from support.controller_harness import context, ids


def brokers(count: int, racks: int = 0) -> dict[int, str | None]:
    return {each: f"rack{each % racks}" if racks else None for each in range(count)}


@given(st.integers(1, 9), st.integers(1, 4), st.integers(1, 40), st.integers(0, 5), st.integers(0, 1 << 16))
def test_replicas_are_distinct_and_leaders_even(
    count: int, factor: int, partitions: int, racks: int, seed: int
) -> None:
    factor = min(factor, count)
    assignment = assign(partitions, factor, brokers(count, racks), random.Random(seed))
    assert len(assignment) == partitions
    assert all(len(set(replicas)) == len(replicas) == factor for replicas in assignment)
    leaders = Counter(replicas[0] for replicas in assignment)
    assert max(leaders.values()) - min(leaders[each] for each in range(count)) <= 1
    if racks:
        possible = min(factor, len({each % racks for each in range(count)}))
        assert all(len({each % racks for each in replicas}) == possible for replicas in assignment)


@given(st.integers(2, 6), st.integers(0, 1 << 16))
def test_followers_are_even_over_full_rounds(count: int, seed: int) -> None:
    assignment = assign(count * (count - 1), 2, brokers(count), random.Random(seed))
    pairs = Counter(assignment)
    assert set(pairs.values()) == {1}
    assert len(pairs) == count * (count - 1)


def test_some_brokers_without_rack_mean_no_racks() -> None:
    racks = {0: "a", 1: None, 2: "a"}
    assert len(assign(3, 3, racks, random.Random(1))) == 3


def test_the_same_seed_places_alike_and_another_elsewhere() -> None:
    placed = [tuple(assign(6, 2, brokers(5), random.Random(seed))) for seed in (1, 1, 2, 3, 4)]
    assert placed[0] == placed[1]
    assert len(set(placed)) > 2


def test_added_partitions_continue_the_round() -> None:
    rng = random.Random(3)
    before = assign(4, 1, brokers(4), rng)
    after = assign(4, 1, brokers(4), rng, first_partition=4, leader_of_first=before[0][0])
    assert [replicas[0] for replicas in after] == [replicas[0] for replicas in before]


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=9),
    st.integers(1, 4),
    st.integers(1, 40),
    st.booleans(),
    st.integers(0, 1 << 16),
)
def test_replicas_share_no_machine_while_there_is_another(
    machines: list[int], factor: int, partitions: int, racks: bool, seed: int
) -> None:
    factor = min(factor, len(machines))
    hosts = {each: f"m{machine}" for each, machine in enumerate(machines)}
    # A machine stands in one rack.
    in_racks = {each: f"r{machine % 2}" if racks else None for each, machine in enumerate(machines)}
    assignment = assign(partitions, factor, in_racks, random.Random(seed), hosts=hosts)
    possible = min(factor, len(set(machines)))
    assert all(len(set(replicas)) == factor for replicas in assignment)
    assert all(len({machines[each] for each in replicas}) == possible for replicas in assignment)
    leaders = Counter(replicas[0] for replicas in assignment)
    assert max(leaders.values()) - min(leaders[each] for each in range(len(machines))) <= 1
    if racks:
        in_all = min(factor, len({machine % 2 for machine in machines}))
        assert all(len({machines[each] % 2 for each in replicas}) == in_all for replicas in assignment)


def test_machines_count_where_some_share_one() -> None:
    def hosts(*names: str | None) -> dict[int, str] | None:
        return shared_hosts(
            {
                BrokerId(each): BrokerInfo(BrokerId(each), each, (), placement_host=name)
                for each, name in enumerate(names)
            }
        )

    assert hosts(None, None) is None
    assert hosts("a", "b") is None
    # All on one: there is nothing to choose.
    assert hosts("a", "a") is None
    assert hosts("a", "a", None) == {0: "a", 1: "a", 2: "broker 2"}


def test_more_replicas_than_brokers() -> None:
    with pytest.raises(InvalidReplicationFactorError, match="at most 1"):
        assign(1, 2, brokers(1), random.Random(1))
    with pytest.raises(InvalidReplicationFactorError, match="0 are registered"):
        assign(1, 1, {}, random.Random(1))


@pytest.mark.parametrize("replicas", [(), (1, 1), (1, 9), (-1,)])
def test_impossible_replicas(replicas: tuple[int, ...]) -> None:
    alive = context(brokers={1: None, 2: None}).image.brokers
    with pytest.raises(InvalidReplicaAssignmentError):
        check_replicas(replicas, alive, "partition 0")
    check_replicas(ids(2, 1), alive, "partition 0")


@pytest.mark.parametrize(
    "assignments", [{1: (1,)}, {0: (1,), 2: (1,)}, {0: (1,), 1: (1, 2)}, {0: ()}, {-1: (1,), 0: (1,)}]
)
def test_impossible_assignments(assignments: dict[int, tuple[int, ...]]) -> None:
    alive = context(brokers={1: None, 2: None}).image.brokers
    with pytest.raises(InvalidReplicaAssignmentError):
        check_assignments(assignments, alive)
    check_assignments({1: (2,), 0: (1,)}, alive)
