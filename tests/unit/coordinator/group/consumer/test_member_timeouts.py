from __future__ import annotations

import pytest

from braidlog.coordinator.effects import Caller
from braidlog.coordinator.group.settings import GroupOverrides, GroupSettings
from braidlog.core.protocol_errors import (
    UnknownMemberIdError,
)
from braidlog.wire.generated.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from support.consumer_groups import GROUP, REBALANCE_S, SESSION_S, ChangingTopics, ConsumerDriver, numbers
from support.responders import RecordingResponder


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver(ChangingTopics(t=4, u=2))


def test_a_static_member_that_stays_away_is_out_after_its_session(driver: ConsumerDriver) -> None:
    driver.join("a", "t", instance_id="one")
    driver.leave("a", -2, instance_id="one")
    driver.advance(SESSION_S + 1)
    assert driver.group.state_name() == "Empty"


def test_a_silent_member_is_out_after_its_session(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.join("b", "t")
    driver.settle("a", "b")
    driver.advance(SESSION_S - 1)
    driver.beat("a", 2)
    driver.advance(2)
    assert list(driver.group.members) == ["a"]
    assert driver.beat("b", 2).error_code == UnknownMemberIdError.code
    assert driver.assignment_of(driver.beat("a", 2)) == {"t": numbers(0, 1, 2, 3)}


def test_members_that_fall_silent_together_go_together(driver: ConsumerDriver) -> None:
    for name in "abc":
        driver.join(name, "t")
    driver.advance(SESSION_S + 1)
    assert driver.group.is_empty()
    assert driver.group.epoch == 6
    assert driver.rebuilt().durable_state() == driver.shard.durable_state()


def test_a_member_that_does_not_let_go_is_out_after_its_rebalance_timeout(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.join("b", "t")
    driver.beat("a", 1)
    driver.advance(REBALANCE_S - 1)
    assert driver.beat("a", 1).error_code == 0
    driver.beat("b", 2)
    driver.advance(2)
    assert driver.beat("a", 1).error_code == UnknownMemberIdError.code
    assert driver.assignment_of(driver.beat("b", 2)) == {"t": numbers(0, 1, 2, 3)}


def test_a_member_that_lets_go_in_time_stays(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.join("b", "t")
    driver.beat("a", 1)
    driver.advance(REBALANCE_S - 1)
    driver.settle("a", "b")
    driver.advance(2)
    assert list(driver.group.members) == ["a", "b"]


def test_after_a_crash_members_have_the_session_that_their_group_sets(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.settings = GroupSettings(overrides={GROUP: GroupOverrides(10_000)})
    driver.crash()
    driver.advance(9.9)
    assert list(driver.group.members) == ["a"]
    driver.advance(0.2)
    assert driver.group.is_empty()


def test_after_a_crash_members_have_a_whole_session_and_rebalance_timeout(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.join("b", "t")
    driver.beat("a", 1)
    before = driver.shard.durable_state()
    driver.advance(REBALANCE_S - 1)
    driver.crash()
    assert driver.shard.durable_state() == before
    driver.advance(REBALANCE_S - 1)
    assert list(driver.group.members) == ["a", "b"]
    driver.advance(2)
    assert list(driver.group.members) == ["b"]
    driver.advance(SESSION_S)
    assert driver.group.is_empty()


def test_a_member_that_the_log_would_not_let_go_is_missed_again(driver: ConsumerDriver) -> None:
    driver.join("m", "t")
    due = driver.shard.next_deadline()
    assert due is not None
    driver.seconds = due
    assert driver.shard.expire(driver.now).records  # which the log refuses
    assert driver.group.members.keys() == {"m"}
    driver.advance(2.0)
    assert not driver.group.members


@pytest.mark.parametrize("instance", [None, "i"])
def test_a_member_whose_leaving_the_log_refused_is_still_missed(driver: ConsumerDriver, instance: str | None) -> None:
    driver.join("m", "t", instance_id=instance)
    request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=-1, instance_id=instance)
    refused = driver.shard.consumer_heartbeat(request, Caller(1, "c", "/h"), RecordingResponder(), driver.now)
    assert refused.records
    assert driver.group.members.keys() == {"m"}
    driver.advance(SESSION_S)
    assert not driver.group.members
