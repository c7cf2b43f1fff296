"""Where records go that do not name their partition, and that queues and leaders are heeded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from braidlog.client.errors import SettingError
from braidlog.client.producer.partitioners import UNDECIDED, BuiltInPartitioner, built_in_partitioner_of, partitioner_of
from braidlog.client.settings import PRODUCER, Settings
from braidlog.core.errors import UserError


@dataclass(frozen=True)
class Place:
    index: int
    leader: int


@dataclass(frozen=True)
class View:
    partitions: Sequence[Place]


def view(*leaders: int) -> View:
    return View(tuple(Place(index, leader) for index, leader in enumerate(leaders)))


def settings(**given: Any) -> Settings:
    return Settings.of(PRODUCER, {}, given)


def choices(given: object, records: Sequence[bytes | None], where: View, **others: Any) -> list[int]:
    partitioner = partitioner_of(settings(partitioner_class=given, **others))
    assert partitioner is not None
    return [partitioner.partition("t", key, b"", where) for key in records]


@pytest.mark.parametrize("name", [None, "default", "murmur2_random"])
def test_the_default_needs_no_partitioner(name: str | None) -> None:
    assert partitioner_of(settings(partitioner_class=name)) is None


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("sticky", {}),
        (None, {"partitioner_ignore_keys": True}),
        ("org.apache.kafka.clients.producer.UniformStickyPartitioner", {}),
    ],
)
def test_keys_can_be_ignored(name: str | None, others: Mapping[str, Any]) -> None:
    assert choices(name, [b"key", None], view(1, 1), **others) == [UNDECIDED, UNDECIDED]


def test_round_robin_takes_every_partition_that_has_a_leader_in_turn() -> None:
    partitioner = partitioner_of(settings(partitioner_class="round_robin"))
    assert partitioner is not None
    where = view(1, -1, 1)
    assert [partitioner.partition("t", b"same", b"", where) for _ in range(4)] == [0, 2, 0, 2]
    assert partitioner.partition("other", None, b"", where) == 0, "each topic has a turn of its own"
    leaderless = view(-1, -1)
    assert [partitioner.partition("none", None, b"", leaderless) for _ in range(3)] == [0, 1, 0]


def test_keys_go_where_librdkafka_sends_them() -> None:
    # CRC-32 of the keys: e8b7be43, 0eecbf7a, 646f0d86.
    keys: list[bytes | None] = [b"a", b"key-1", b"user:42"]
    assert choices("consistent_random", keys, view(*[1] * 12)) == [3, 2, 10]
    assert choices("consistent_random", [None, b""], view(1, 1)) == [UNDECIDED, UNDECIDED]


class ByLength:
    closed = False

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int | None:
        return None if key is None else len(key) % partitions

    def close(self) -> None:
        self.closed = True


def test_an_object_a_class_or_a_callable_may_choose() -> None:
    own = ByLength()
    for given_one in (own, ByLength, own.partition):
        assert choices(given_one, [b"abc", None], view(1, 1)) == [1, UNDECIDED]
    partitioner = partitioner_of(settings(partitioner_class=own))
    assert partitioner is not None
    partitioner.close()
    assert own.closed


@pytest.mark.parametrize("chosen", [2, -1, "0"])
def test_a_choice_that_does_not_exist_is_refused(chosen: object) -> None:
    with pytest.raises(UserError, match=r"topic t, which has 2 partitions"):
        choices(lambda *_: chosen, [None], view(1, 1))


@pytest.mark.parametrize("given_one", ["nobody", 7])
def test_an_unknown_partitioner_is_refused(given_one: object) -> None:
    with pytest.raises(SettingError, match=r"partitioner\.class"):
        partitioner_of(settings(partitioner_class=given_one))


# Sticky


def test_it_sticks_until_it_has_to_switch() -> None:
    chooser = BuiltInPartitioner(random=Random(4))
    where = view(1, 2, 3)
    first = chooser.current("t", where)
    assert {chooser.current("t", where) for _ in range(20)} == {first}
    assert {chooser.switch("t", where, []) for _ in range(50)} == {0, 1, 2}
    assert chooser.current("t", where) == chooser._current["t"]


def test_partitions_without_a_leader_wait() -> None:
    chooser = BuiltInPartitioner(random=Random(4))
    assert {chooser.switch("t", view(-1, 5, -1, 5), []) for _ in range(50)} == {1, 3}
    assert {chooser.switch("t", view(-1, -1), []) for _ in range(50)} == {0, 1}, "all the same, if none has"


def test_a_topic_that_came_back_smaller_is_chosen_anew() -> None:
    chooser = BuiltInPartitioner(random=Random(4))
    while chooser.switch("t", view(1, 1, 1), []) != 2:
        pass
    assert chooser.current("t", view(1, 1)) in (0, 1)


def drawn(queued: Sequence[int], adaptive: bool = True) -> Counter[int]:
    chooser = built_in_partitioner_of(settings(partitioner_adaptive_partitioning_enable=adaptive), Random(7))
    where = view(*[1] * len(queued))
    return Counter(chooser.switch("t", where, queued) for _ in range(6000))


def test_short_queues_are_drawn_more_often() -> None:
    """Queues of 0, 3 and 1: weights 4, 1 and 3."""
    counts = drawn([0, 3, 1])
    assert [round(counts[index] / 750) for index in range(3)] == [4, 1, 3]


def test_without_adaption_only_absence_counts() -> None:
    counts = drawn([0, 30, -1], adaptive=False)
    assert counts[2] == 0
    assert abs(counts[0] - counts[1]) < 600


def test_a_broker_that_takes_nothing_gets_nothing() -> None:
    assert set(drawn([-1, 5, -1, 0])) == {1, 3}
    assert set(drawn([-1, -1])) == {0, 1}, "unless none does"


@given(
    st.lists(st.tuples(st.integers(-1, 3), st.integers(-1, 40)), min_size=1, max_size=12), st.booleans(), st.integers()
)
def test_a_choice_always_exists(places: list[tuple[int, int]], adaptive: bool, seed: int) -> None:
    where = view(*(leader for leader, _ in places))
    chosen = BuiltInPartitioner(adaptive, Random(seed)).switch("t", where, [queue for _, queue in places])
    able = {index for index, (leader, queue) in enumerate(places) if leader >= 0 and queue >= 0}
    led = {index for index, (leader, _) in enumerate(places) if leader >= 0}
    assert chosen in (able or led or range(len(places)))
