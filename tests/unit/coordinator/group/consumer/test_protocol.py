"""Members of the consumer protocol, request by request."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.coordinator.group.consumer.member import UNRELEASED, UNREVOKED
from braidlog.coordinator.group.settings import GroupOverrides, GroupSettings
from braidlog.core.protocol_errors import (
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    InvalidRequestError,
    ProtocolError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
    UnsupportedAssignorError,
    UnsupportedVersionError,
)
from support.consumer_groups import GROUP, SESSION_S, ChangingTopics, ConsumerDriver, numbers

INVALID_REGULAR_EXPRESSION = 128


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver(ChangingTopics(t=4, u=2))


def described(driver: ConsumerDriver) -> Any:
    return driver.submit(lambda shard, responder, now: shard.describe_consumer_group("g", responder, now)).response


# Joining


def test_the_first_member_gets_everything_at_once(driver: ConsumerDriver) -> None:
    answer = driver.join("a", "t", "u")
    assert driver.assignment_of(answer) == {"t": numbers(0, 1, 2, 3), "u": numbers(0, 1)}
    assert (answer.response.member_id, answer.response.member_epoch) == ("a", 1)
    assert answer.response.heartbeat_interval_ms == 5_000
    assert driver.group.state_name() == "Stable"


def test_the_first_version_gives_members_their_ids(driver: ConsumerDriver) -> None:
    assert driver.join("", "t", version=0).response.member_id == "member-1"
    assert driver.join("", "t", version=1).error_code == InvalidRequestError.code


def test_a_settled_member_is_told_nothing_new_and_nothing_is_written(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.beat("a", 1)
    before = len(driver.log)
    answer = driver.beat("a", 1)
    assert driver.assignment_of(answer) is None
    assert answer.response.member_epoch == 1
    assert len(driver.log) == before


def test_a_member_that_tells_everything_is_told_everything(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    answer = driver.beat("a", 1, {"t": numbers(0)}, subscribed_topic_names=["t"], rebalance_timeout_ms=1000)
    assert driver.assignment_of(answer) == {"t": numbers(0, 1, 2, 3)}


def test_a_member_without_topics_is_a_member_all_the_same(driver: ConsumerDriver) -> None:
    assert driver.assignment_of(driver.join("a", version=1)) == {}
    assert driver.group.members["a"].epoch == 1
    assert driver.join("b", version=0).error_code == InvalidRequestError.code


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"group_id": " "}, InvalidRequestError),
        ({"instance_id": ""}, InvalidRequestError),
        ({"rack_id": ""}, InvalidRequestError),
        ({"rebalance_timeout_ms": -1}, InvalidRequestError),
        ({"topic_partitions": None}, InvalidRequestError),
        ({"subscribed_topic_names": None}, InvalidRequestError),
        ({"server_assignor": "nobody"}, UnsupportedAssignorError),
        ({"member_epoch": -3}, InvalidRequestError),
        ({"member_epoch": -2}, InvalidRequestError),
        ({"member_epoch": 1}, GroupIdNotFoundError),
        ({"member_epoch": -1}, GroupIdNotFoundError),
    ],
)
def test_requests_that_make_no_sense(
    driver: ConsumerDriver, fields: dict[str, Any], error: type[ProtocolError]
) -> None:
    assert driver.join("a", "t", **fields).error_code == error.code
    assert not driver.log
    assert not driver.shard.groups


def test_a_full_group_takes_nobody_but_its_members(driver: ConsumerDriver) -> None:
    driver.settings = GroupSettings(consumer_max_size=1)
    driver.join("a", "t")
    assert driver.join("b", "t").error_code == GroupMaxSizeReachedError.code
    assert driver.beat("a", 1).error_code == 0


def test_the_protocol_can_be_off(driver: ConsumerDriver) -> None:
    driver.settings = GroupSettings(consumer_protocol=False)
    assert driver.join("a", "t").error_code == UnsupportedVersionError.code
    describe = driver.submit(lambda shard, responder, now: shard.describe_consumer_group(GROUP, responder, now))
    assert describe.error_code == UnsupportedVersionError.code


# From owner to owner


def test_a_partition_is_given_on_only_after_its_owner_let_go(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    assert driver.assignment_of(driver.join("b", "t")) == {}
    assert driver.group.members["b"].progress.state == UNRELEASED
    assert driver.group.state_name() == "Reconciling"
    kept = driver.assignment_of(driver.beat("a", 1, {"t": numbers(0, 1, 2, 3)}))
    assert kept == {"t": numbers(0, 1)}
    assert driver.group.members["a"].progress.state == UNREVOKED
    assert driver.assignment_of(driver.beat("b", 2)) is None
    still = driver.beat("a", 1, {"t": numbers(0, 1, 2)})
    assert (driver.assignment_of(still), still.response.member_epoch) == (None, 1)
    gone = driver.beat("a", 1, kept)
    assert (driver.assignment_of(gone), gone.response.member_epoch) == (None, 2)
    assert driver.assignment_of(driver.beat("b", 2)) == {"t": numbers(2, 3)}
    assert driver.group.state_name() == "Stable"


def test_what_a_member_leaves_behind_goes_to_the_others(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.join("b", "t")
    driver.settle("a", "b")
    answer = driver.leave("b")
    assert (answer.response.member_id, answer.response.member_epoch) == ("b", -1)
    assert answer.response.assignment is None
    assert driver.group.state_name() == "Assigning"
    assert driver.assignment_of(driver.beat("a", 2)) == {"t": numbers(0, 1, 2, 3)}
    assert driver.leave("b").error_code == UnknownMemberIdError.code


# Static members


def test_a_static_member_comes_back_to_what_it_had(driver: ConsumerDriver) -> None:
    driver.join("a", "t", instance_id="one")
    driver.join("b", "t", instance_id="two")
    owned = driver.settle("a", "b")
    assert driver.join("c", "t", instance_id="one").error_code == UnreleasedInstanceIdError.code
    assert driver.leave("a", -2, instance_id="one").response.member_epoch == -2
    driver.settle("b")
    assert driver.group.targets["b"] == driver.group.members["b"].progress.assigned
    answer = driver.join("c", "t", instance_id="one")
    assert driver.assignment_of(answer) == owned["a"]
    assert answer.response.member_epoch == 2
    assert list(driver.group.members) == ["b", "c"]
    assert driver.beat("a", 2, instance_id="one").error_code == FencedInstanceIdError.code
    assert driver.beat("a", 2).error_code == UnknownMemberIdError.code
    assert driver.beat("x", 2, instance_id="none").error_code == UnknownMemberIdError.code
    driver.advance(SESSION_S - 1)
    driver.beat("b", 2)
    driver.beat("c", 2)
    driver.advance(2)
    assert list(driver.group.members) == ["b", "c"], "the session of the member that went must not end its successor"


def test_a_static_member_comes_back_reading_something_else(driver: ConsumerDriver) -> None:
    driver.join("a", "t", instance_id="one")
    driver.join("b", "t")
    driver.settle("a", "b")
    driver.leave("a", -2, instance_id="one")
    answer = driver.join("c", "u", instance_id="one")
    assert driver.assignment_of(answer) == {"u": numbers(0, 1)}
    assert driver.settle("b", "c") == {"b": {"t": numbers(0, 1, 2, 3)}, "c": {"u": numbers(0, 1)}}
    assert driver.rebuilt().durable_state() == driver.shard.durable_state()


def test_a_static_member_can_leave_for_good(driver: ConsumerDriver) -> None:
    driver.join("a", "t", instance_id="one")
    assert driver.leave("a", -1, instance_id="other").error_code == UnknownMemberIdError.code
    assert driver.leave("a", -1, instance_id="one").error_code == 0
    assert driver.group.is_empty()


# Time


def test_only_the_assignors_that_are_on_can_be_asked_for_and_the_first_is_the_default(driver: ConsumerDriver) -> None:
    driver.settings = GroupSettings(consumer_assignors=("range",))
    assert driver.join("a", "t", server_assignor="uniform").error_code == UnsupportedAssignorError.code
    assert driver.join("a", "t").error_code == 0
    assert described(driver).assignor_name == "range"


def test_what_a_group_sets_counts_from_the_next_heartbeat(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.join("b", "t")
    driver.settle("a", "b")
    driver.settings = GroupSettings(overrides={GROUP: GroupOverrides(10_000, 2_000), "other": GroupOverrides(1, 1)})
    assert driver.beat("a", driver.group.members["a"].epoch).response.heartbeat_interval_ms == 2_000
    driver.advance(9.9)
    assert list(driver.group.members) == ["a", "b"]
    driver.advance(0.2)
    assert list(driver.group.members) == ["b"], "a's session began anew with its heartbeat, b's did not"
    driver.advance(SESSION_S - 10.2)
    assert list(driver.group.members) == ["b"]
    driver.settings = GroupSettings(overrides={GROUP: GroupOverrides(heartbeat_interval_ms=3_000)})
    answer = driver.beat("b", driver.group.members["b"].epoch)
    assert answer.response.heartbeat_interval_ms == 3_000
    driver.advance(SESSION_S - 0.1)
    assert list(driver.group.members) == ["b"], "where the group says nothing the broker's setting counts"


# Patterns


def test_a_pattern_follows_the_topics(driver: ConsumerDriver) -> None:
    regex = {"subscribed_topic_names": None, "subscribed_topic_regex": "t|new.*"}
    assert driver.assignment_of(driver.join("a", **regex)) == {"t": numbers(0, 1, 2, 3)}
    driver.topics.create("new-1", 1)
    driver.topics_changed()
    assert driver.assignment_of(driver.beat("a", 1)) == {"t": numbers(0, 1, 2, 3), "new-1": numbers(0)}
    group = driver.group
    assert (group.is_subscribed_to("new-1"), group.is_subscribed_to("u")) == (True, False)
    assert driver.assignment_of(driver.beat("a", 2, {}, subscribed_topic_regex="")) == {}
    assert not driver.group.is_subscribed_to("t")


def test_a_pattern_beside_names(driver: ConsumerDriver) -> None:
    answer = driver.join("a", "t", subscribed_topic_regex="[u-z]")
    assert driver.assignment_of(answer) == {"t": numbers(0, 1, 2, 3), "u": numbers(0, 1)}
    driver.crash()
    assert driver.assignment_of(driver.beat("a", 1)) is None
    assert driver.group.is_subscribed_to("u")


@pytest.mark.parametrize("regex", ["(", r"(a)\1", "(?=a)", "a++"])
def test_a_pattern_that_cannot_be(driver: ConsumerDriver, regex: str) -> None:
    answer = driver.join("a", subscribed_topic_names=None, subscribed_topic_regex=regex)
    assert answer.error_code == INVALID_REGULAR_EXPRESSION
    driver.join("a", "t")
    assert driver.beat("a", 1, subscribed_topic_regex=regex).error_code == INVALID_REGULAR_EXPRESSION


# Refused writes


def test_300_members_join_one_group() -> None:
    driver = ConsumerDriver(ChangingTopics(big=1_000))
    names = [f"m{number:03}" for number in range(300)]
    for name in names:
        assert driver.join(name, "big").error_code == 0
    owned = driver.settle(*names)
    assert sorted({len(mine["big"]) for mine in owned.values()}) == [3, 4]
    assert driver.group.state_name() == "Stable"
