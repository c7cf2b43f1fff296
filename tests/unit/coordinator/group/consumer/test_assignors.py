from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.coordinator.group.consumer.assignors import (
    ASSIGNORS,
    MemberSubscription,
    assign_range,
    assign_uniform,
    preferred_assignor,
)
from braidlog.coordinator.group.consumer.member import Assignment

TOPICS = [bytes([number]) * 16 for number in range(6)]


def count_partitions(assignment: Assignment) -> int:
    return sum(len(partitions) for partitions in assignment.values())


def readers(
    subscriptions: Mapping[str, tuple[bytes, ...]], before: Mapping[str, Assignment] | None = None
) -> list[MemberSubscription]:
    return [
        MemberSubscription(name, None, topics, (before or {}).get(name, {})) for name, topics in subscriptions.items()
    ]


def everything(given_out: Mapping[str, Assignment]) -> list[tuple[bytes, int]]:
    return sorted(
        (topic, number) for part in given_out.values() for topic, numbers in part.items() for number in numbers
    )


def moved(before: Mapping[str, Assignment], after: Mapping[str, Assignment]) -> int:
    """Partitions that somebody who is still there had and has not any more."""
    lost = 0
    for name, now in after.items():
        for topic, numbers in before.get(name, {}).items():
            lost += len(numbers - now.get(topic, frozenset()))
    return lost


subscriptions = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(8)]),
    st.lists(st.sampled_from(TOPICS), unique=True).map(tuple),
    min_size=1,
)
partition_counts = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 9))


@pytest.mark.parametrize("name", ASSIGNORS)
@given(first=subscriptions, second=subscriptions, counts=partition_counts, more=partition_counts)
def test_every_partition_goes_to_one_reader(
    name: str,
    first: dict[str, tuple[bytes, ...]],
    second: dict[str, tuple[bytes, ...]],
    counts: dict[bytes, int],
    more: dict[bytes, int],
) -> None:
    assign = ASSIGNORS[name]
    before = assign(readers(first), counts)
    for subscribed, partitions, target in (
        (first, counts, before),
        (second, more, assign(readers(second, before), more)),
    ):
        read = {topic for topics in subscribed.values() for topic in topics}
        expected = sorted((t, n) for t, count in partitions.items() if t in read for n in range(count))
        assert everything(target) == expected
        assert set(target) == set(subscribed)
        for member, topics in subscribed.items():
            assert set(target[member]) <= set(topics)
            assert all(target[member].values()), "a topic without partitions"


@given(
    first=st.sets(st.integers(0, 15), min_size=1),
    second=st.sets(st.integers(0, 15), min_size=1),
    counts=partition_counts,
)
def test_uniform_is_even_and_moves_as_few_as_that_takes(
    first: set[int], second: set[int], counts: dict[bytes, int]
) -> None:
    same = tuple(TOPICS)
    before = assign_uniform(readers({f"m{n}": same for n in first}), counts)
    after = assign_uniform(readers({f"m{n}": same for n in second}, before), counts)
    for target in (before, after):
        sizes = [count_partitions(part) for part in target.values()]
        assert max(sizes) - min(sizes) <= 1
    # Nobody can keep more than the larger share, and no more than so many can have it.
    least, more = divmod(sum(counts.values()), len(second))
    had = sorted((count_partitions(before.get(f"m{n}", {})) for n in second), reverse=True)
    could_keep = sum(min(size, least + (place < more)) for place, size in enumerate(had))
    assert sum(had) - moved(before, after) == could_keep


@given(subscribed=subscriptions, counts=partition_counts)
def test_uniform_leaves_a_settled_group_alone(
    subscribed: dict[str, tuple[bytes, ...]], counts: dict[bytes, int]
) -> None:
    once = assign_uniform(readers(subscribed), counts)
    assert assign_uniform(readers(subscribed, once), counts) == once


@given(subscribed=subscriptions, counts=partition_counts)
def test_uniform_leaves_nothing_that_one_move_would_better(
    subscribed: dict[str, tuple[bytes, ...]], counts: dict[bytes, int]
) -> None:
    target = assign_uniform(readers(subscribed), counts)
    sizes = {name: count_partitions(part) for name, part in target.items()}
    for name, part in target.items():
        for topic in part:
            others = [sizes[other] for other, topics in subscribed.items() if topic in topics]
            assert sizes[name] - min(others) <= 1


def test_uniform_does_not_trust_a_target_that_names_a_partition_twice() -> None:
    both = {TOPICS[0]: frozenset({0, 1})}
    target = assign_uniform(readers({"a": (TOPICS[0],), "b": (TOPICS[0],)}, {"a": both, "b": both}), {TOPICS[0]: 2})
    assert everything(target) == [(TOPICS[0], 0), (TOPICS[0], 1)]


def test_range_cuts_topics_alike() -> None:
    target = assign_range(
        [
            MemberSubscription("z", "first", (TOPICS[0], TOPICS[1]), {}),
            MemberSubscription("a", None, (TOPICS[0], TOPICS[1]), {}),
            MemberSubscription("b", None, (TOPICS[0],), {}),
        ],
        {TOPICS[0]: 5, TOPICS[1]: 3},
    )
    assert target == {
        "z": {TOPICS[0]: frozenset({0, 1}), TOPICS[1]: frozenset({0, 1})},
        "a": {TOPICS[0]: frozenset({2, 3}), TOPICS[1]: frozenset({2})},
        "b": {TOPICS[0]: frozenset({4})},
    }


def test_range_gives_some_members_nothing_where_there_is_too_little() -> None:
    target = assign_range(readers(dict.fromkeys("abc", (TOPICS[0],))), {TOPICS[0]: 2})
    assert [len(target[name]) for name in "abc"] == [1, 1, 0]


def test_of_300_members_one_goes_and_the_others_keep_what_they_have() -> None:
    counts = dict.fromkeys(TOPICS[:5], 200)
    names = [f"m{number}" for number in range(300)]
    before = assign_uniform(readers(dict.fromkeys(names, tuple(counts))), counts)
    after = assign_uniform(readers(dict.fromkeys(names[:-1], tuple(counts)), before), counts)
    assert moved(before, after) == 0
    assert {count_partitions(part) for part in after.values()} == {3, 4}


def test_the_assignor_most_members_ask_for() -> None:
    known = ("uniform", "range")
    assert preferred_assignor({}, known) == "uniform"
    assert preferred_assignor({"range": 2, "uniform": 1}, known) == "range"
    assert preferred_assignor({"range": 1, "uniform": 1}, known) == "uniform"
    assert preferred_assignor({"unheard-of": 5, "range": 1}, known) == "range"
