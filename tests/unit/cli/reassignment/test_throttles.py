"""Which settings a throttle puts where, and that all of it is taken away again."""

from __future__ import annotations

import pytest

from braidlog.cli.reassignment.moves import Move
from braidlog.cli.reassignment.throttles import (
    FOLLOWERS,
    LEADERS,
    RATES,
    left_over,
    merged,
    set_throttle,
    take_off,
    wanted_lists,
)
from braidlog.client.admin import ConfigResource
from braidlog.core.types import TopicPartition
from support.fake_admin import FakeCluster

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
MOVES = [Move(A0, (0, 1), (2, 1)), Move(A1, (0, 1), (1, 0)), Move(B0, (0,), (1, 2))]
TOPIC_A, TOPIC_B = ConfigResource.topic("a"), ConfigResource.topic("b")


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster({A0: (0, 1), A1: (0, 1), B0: (0,)}, range(4))


def test_leaders_are_all_that_may_lead_and_followers_all_that_copy() -> None:
    assert wanted_lists(MOVES) == {
        "a": {LEADERS: ["0:0", "0:1"], FOLLOWERS: ["0:2"]},
        "b": {LEADERS: ["0:0"], FOLLOWERS: ["0:1", "0:2"]},
    }


@pytest.mark.parametrize(
    ("existing", "text"), [("", "0:1,0:2"), ("0:1", "0:1,0:2"), (" 3:3 , 0:2,", "3:3,0:2,0:1"), ("*", "*")]
)
def test_lists_grow(existing: str, text: str) -> None:
    assert merged(existing, ["0:1", "0:2"]) == text


@pytest.mark.parametrize(("existing", "text"), [("0:1,3:2,0:2", "3:2"), ("*", "*"), ("0:1", ""), ("", "")])
def test_lists_shrink(existing: str, text: str) -> None:
    assert left_over(existing, {3}) == text


def test_brokers_that_copy_nothing_or_are_down_get_no_rate(cluster: FakeCluster) -> None:
    cluster.brokers.discard(1)
    set_throttle(cluster.admin, MOVES, 5000, cluster.brokers)
    rates = dict.fromkeys(RATES, "5000")
    assert cluster.configs == {
        TOPIC_A: {LEADERS: "0:0,0:1", FOLLOWERS: "0:2"},
        TOPIC_B: {LEADERS: "0:0", FOLLOWERS: "0:1,0:2"},
        ConfigResource.broker(0): rates,
        ConfigResource.broker(2): rates,
    }


def test_what_is_being_moved_stays_throttled_and_rates_go_with_the_last(cluster: FakeCluster) -> None:
    set_throttle(cluster.admin, MOVES, 5000, cluster.brokers)
    cluster.admin.alter_partition_reassignments({A0: [2, 1], B0: [1, 2]})
    assert not take_off(cluster.admin)
    cluster.finish(B0)
    assert take_off(cluster.admin)
    assert cluster.configs[TOPIC_B] == {}
    assert cluster.configs[TOPIC_A] != {}
    assert cluster.configs[ConfigResource.broker(2)] != {}
    cluster.finish(A0)
    del cluster.calls[:]
    assert take_off(cluster.admin)
    assert cluster.throttles() == {}
    # Whoever is killed in between finds the lists, and with them that rates may be left.
    assert cluster.calls[-1] == "configure topic a"
    assert not take_off(cluster.admin)


def test_what_somebody_throttles_as_a_whole_stays(cluster: FakeCluster) -> None:
    cluster.configs[TOPIC_B] = {LEADERS: "*"}
    cluster.configs[ConfigResource.broker(3)] = {RATES[0]: "7"}
    set_throttle(cluster.admin, MOVES[:1], 5000, cluster.brokers)
    assert take_off(cluster.admin)
    assert cluster.configs[TOPIC_A] == {}
    assert cluster.configs[TOPIC_B] == {LEADERS: "*"}
    assert cluster.configs[ConfigResource.broker(3)] == {RATES[0]: "7"}
