from __future__ import annotations

from typing import Any

import pytest

from braidlog.coordinator.group.consumer.member import STABLE
from support.consumer_groups import ChangingTopics, ConsumerDriver, numbers


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver(ChangingTopics(t=4, u=2))


def described(driver: ConsumerDriver) -> Any:
    return driver.submit(lambda shard, responder, now: shard.describe_consumer_group("g", responder, now)).response


def test_topics_that_come_grow_and_go(driver: ConsumerDriver) -> None:
    assert driver.assignment_of(driver.join("a", "later")) == {}
    driver.topics.create("later", 1)
    driver.topics_changed()
    assert driver.assignment_of(driver.beat("a", 1)) == {"later": numbers(0)}
    driver.topics.grow("later", 2)
    driver.topics_changed()
    assert driver.assignment_of(driver.beat("a", 2)) == {"later": numbers(0, 1)}
    driver.topics.delete("later")
    driver.topics_changed()
    assert driver.assignment_of(driver.beat("a", 3, {})) == {}
    assert driver.group.state_name() == "Stable"
    assert driver.group.epoch == 4


def test_a_topic_that_comes_back_is_another_one(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.topics.delete("t")
    driver.topics.create("t", 1)
    driver.topics_changed()
    assert driver.assignment_of(driver.beat("a", 1, {})) == {"t": numbers(0)}


def test_a_change_of_other_topics_costs_nothing(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.beat("a", 1)
    driver.topics.create("other", 1)
    driver.topics_changed()
    before = len(driver.log)
    driver.beat("a", 1)
    assert len(driver.log) == before


def test_racks_are_written_down_and_a_change_of_them_is_seen(driver: ConsumerDriver) -> None:
    driver.topics.racks["t", 1] = frozenset({"r1"})
    driver.join("a", "t")
    assert driver.group.subscription_metadata["t"].racks[1] == frozenset({"r1"})
    driver.topics.racks["t", 1] = frozenset({"r2"})
    driver.topics_changed()
    assert driver.beat("a", 1).response.member_epoch == 2


def test_a_member_that_subscribes_otherwise(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    assert driver.assignment_of(driver.beat("a", 1, {"t": numbers(0)}, subscribed_topic_names=["u"])) == {}
    answer = driver.beat("a", 1, {})
    assert (driver.assignment_of(answer), answer.response.member_epoch) == ({"u": numbers(0, 1)}, 2)


def test_members_that_read_different_topics(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.join("b", "t", "u")
    driver.join("c", "u")
    owned = driver.settle("a", "b", "c")
    # Between those who read the same topic nobody has two more than another.
    assert {name: sum(map(len, mine.values())) for name, mine in owned.items()} == {"a": 3, "b": 2, "c": 1}
    assert (set(owned["a"]), set(owned["c"])) == ({"t"}, {"u"})


def test_members_choose_the_assignor(driver: ConsumerDriver) -> None:
    driver.join("a", "t", "u", server_assignor="range")
    driver.join("b", "t", "u", server_assignor="range")
    owned = driver.settle("a", "b")
    assert owned == {
        "a": {"t": numbers(0, 1), "u": numbers(0)},
        "b": {"t": numbers(2, 3), "u": numbers(1)},
    }
    assert described(driver).assignor_name == "range"


def test_a_change_of_topics_is_not_lost_with_a_write_that_fails(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.beat("a", 1)
    driver.topics.grow("t", 5)
    driver.topics_changed()
    apply, driver.apply = driver.apply, lambda effects: None  # type: ignore[method-assign]
    driver.beat("a", 1)
    driver.apply = apply  # type: ignore[method-assign]
    assert driver.assignment_of(driver.beat("a", 1)) == {"t": numbers(0, 1, 2, 3, 4)}
    assert driver.group.members["a"].progress.state == STABLE
