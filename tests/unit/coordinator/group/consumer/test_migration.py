"""Groups that go over to the consumer protocol and back, and members of both kinds in one group."""

from __future__ import annotations

import dataclasses

import pytest

from braidlog.coordinator.group.classic.group import ClassicGroup
from braidlog.coordinator.group.consumer.group import ConsumerGroup
from braidlog.coordinator.group.consumer.member import UNRELEASED
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.core.protocol_errors import (
    FencedInstanceIdError,
    GroupIdNotFoundError,
    RebalanceInProgressError,
    UnknownServerError,
    UnsupportedVersionError,
)
from braidlog.wire.generated.join_group import JoinGroupRequestProtocol
from braidlog.wire.generated.leave_group import MemberIdentity
from support.consumer_groups import (
    CLASSIC_SESSION_S,
    GROUP,
    REBALANCE_S,
    ChangingTopics,
    ConsumerDriver,
    numbers,
    synced,
)

ALL = {"t": numbers(0, 1, 2, 3)}


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver(ChangingTopics(t=4, u=2))


def settled_classic(driver: ConsumerDriver, **how: object) -> str:
    """One member of a classic group that has all of `t`."""
    member_id, joining = driver.enter_classic("t", **how)
    driver.advance(0)
    generation = joining.response.generation_id
    assert synced(driver.sync_classic(member_id, generation, {member_id: ALL})) == ALL
    return member_id


def holds(driver: ConsumerDriver) -> None:
    assert driver.rebuilt().durable_state() == driver.shard.durable_state()


# To the consumer protocol


def test_a_group_goes_over_with_its_members_and_what_they_have(driver: ConsumerDriver) -> None:
    old = settled_classic(driver)
    assert driver.assignment_of(driver.join("new", "t")) == {}
    assert isinstance(driver.shard.groups[GROUP], ConsumerGroup)
    assert driver.group.epoch == 2
    assert driver.named(driver.group.members[old].progress.assigned) == ALL
    assert driver.group.members["new"].progress.state == UNRELEASED
    holds(driver)
    # The old member hears of it with its heartbeat, joins, gives up what it must, and joins again.
    assert driver.beat_classic(old, 1).error_code == RebalanceInProgressError.code
    joined = driver.join_classic(old, "t", owned=ALL)
    assert (joined.error_code, joined.response.generation_id, joined.response.leader) == (0, 1, "")
    kept = synced(driver.sync_classic(old, 1))
    assert kept == {"t": numbers(0, 1)}
    assert driver.beat_classic(old, 1).error_code == RebalanceInProgressError.code
    again = driver.join_classic(old, "t", owned=kept)
    assert again.response.generation_id == 2
    assert synced(driver.sync_classic(old, 2)) == kept
    assert driver.beat_classic(old, 2).error_code == 0
    assert driver.assignment_of(driver.beat("new", 2)) == {"t": numbers(2, 3)}
    assert driver.group.state_name() == "Stable"
    holds(driver)


def test_whoever_waits_in_the_classic_group_joins_again(driver: ConsumerDriver) -> None:
    driver.settings = GroupSettings(initial_rebalance_delay_ms=3_000)
    member_id, waiting = driver.enter_classic("t")
    assert not waiting.answered
    assert driver.join("new", "t").error_code == 0
    assert waiting.error_code == RebalanceInProgressError.code
    assert set(driver.group.members) == {member_id, "new"}
    driver.advance(5)
    assert set(driver.group.members) == {member_id, "new"}, "deadlines of the classic group are gone with it"
    holds(driver)


def test_a_partition_that_an_assignor_gave_to_two_stays_with_one(driver: ConsumerDriver) -> None:
    first, _ = driver.enter_classic("t")
    driver.advance(0)
    second, _ = driver.enter_classic("t")
    driver.join_classic(first, "t")
    driver.sync_classic(first, driver.classic.generation, {first: ALL, second: ALL})
    driver.sync_classic(second, driver.classic.generation)
    driver.join("new", "t")
    held = [driver.group.members[name].progress.assigned for name in (first, second)]
    assert [len(part) for part in held] == [1, 0]


@pytest.mark.parametrize(
    ("settings", "how"),
    [
        (GroupSettings(upgrade_allowed=False, initial_rebalance_delay_ms=0), {}),
        (GroupSettings(consumer_max_size=0, initial_rebalance_delay_ms=0), {}),
        (GroupSettings(initial_rebalance_delay_ms=0), {"protocol_type": "connect"}),
        (
            GroupSettings(initial_rebalance_delay_ms=0),
            {"protocols": [JoinGroupRequestProtocol(name="cooperative-sticky", metadata=b"\xff")]},
        ),
    ],
)
def test_a_group_that_cannot_go_over_stays_as_it_is(
    driver: ConsumerDriver, settings: GroupSettings, how: dict[str, object]
) -> None:
    driver.settings = settings
    member_id, _ = driver.enter_classic("t", **how)
    driver.advance(0)
    before = len(driver.log)
    assert driver.join("new", "t").error_code == GroupIdNotFoundError.code
    assert isinstance(driver.shard.groups[GROUP], ClassicGroup)
    assert (list(driver.classic.members), len(driver.log)) == ([member_id], before)


def test_an_empty_group_takes_either_protocol(driver: ConsumerDriver) -> None:
    old = settled_classic(driver)
    driver.leave_classic(old)
    assert driver.assignment_of(driver.join("new", "t")) == ALL
    holds(driver)
    driver.leave("new")
    assert driver.group.is_empty()
    settled_classic(driver)
    holds(driver)
    driver.leave_classic(*driver.classic.members)
    assert driver.join("newer", "t").response.member_epoch == 1
    holds(driver)


# And back


def test_the_group_goes_back_with_the_last_member_of_the_newer_protocol(driver: ConsumerDriver) -> None:
    driver.join("new", "t")
    old, joined = driver.enter_classic("t")
    assert joined.response.generation_id == 2
    driver.settle("new")
    driver.join_classic(old, "t", owned={})
    assert driver.leave("new").error_code == 0
    assert isinstance(driver.shard.groups[GROUP], ClassicGroup)
    assert (driver.classic.generation, driver.classic.state_name()) == (2, "PreparingRebalance")
    holds(driver)
    assert driver.beat_classic(old, 2).error_code == RebalanceInProgressError.code
    again = driver.join_classic(old, "t")
    assert (again.response.generation_id, again.response.leader) == (3, old)
    assert synced(driver.sync_classic(old, 3, {old: ALL})) == ALL
    holds(driver)


def test_the_group_goes_back_when_the_last_one_falls_silent(driver: ConsumerDriver) -> None:
    driver.join("new", "t")
    old, _ = driver.enter_classic("t")
    synced(driver.sync_classic(old, 2))
    for _ in range(10):
        driver.advance(5)
        driver.beat_classic(old, 2)
    assert isinstance(driver.shard.groups[GROUP], ClassicGroup)
    holds(driver)
    driver.advance(CLASSIC_SESSION_S + 1)
    assert driver.classic.is_empty()
    holds(driver)


def test_everybody_falls_silent_at_once(driver: ConsumerDriver) -> None:
    driver.settings = GroupSettings(consumer_session_timeout_ms=int(CLASSIC_SESSION_S * 1000))
    driver.join("new", "t")
    driver.enter_classic("t")
    driver.advance(2 * CLASSIC_SESSION_S + REBALANCE_S)
    assert driver.shard.groups[GROUP].is_empty()
    holds(driver)


def test_without_leave_the_group_stays(driver: ConsumerDriver) -> None:
    driver.settings = GroupSettings(downgrade_allowed=False)
    driver.join("new", "t")
    old, _ = driver.enter_classic("t")
    driver.leave("new")
    assert list(driver.group.members) == [old]
    assert driver.beat_classic(old, 2).error_code == RebalanceInProgressError.code
    joined = driver.join_classic(old, "t", owned={})
    assert synced(driver.sync_classic(old, joined.response.generation_id)) == ALL
    holds(driver)


# Members of the classic protocol in a group of the newer


def test_a_static_member_goes_over_by_itself(driver: ConsumerDriver) -> None:
    driver.join("new", "t")
    old = driver.join_classic("", "t", group_instance_id="one").response.member_id
    again = driver.join_classic("", "t", group_instance_id="one").response.member_id
    assert set(driver.group.members) == {"new", again}
    assert driver.beat_classic(old, 2, group_instance_id="one").error_code == FencedInstanceIdError.code
    driver.settle("new")
    driver.leave_classic(MemberIdentity(member_id=again, group_instance_id="one"))
    assert driver.join("over", "t", instance_id="one").error_code == 0
    assert not driver.group.classic_members
    holds(driver)


def test_a_member_that_goes_over_under_its_id_is_not_missed_by_the_older_deadlines(driver: ConsumerDriver) -> None:
    old = settled_classic(driver)
    assert driver.join(old, "t").error_code != 0, "an id that is in use joins anew only after it left"
    driver.join("new", "t")
    driver.beat_classic(old, 1)
    answer = driver.beat(old, 1, ALL, rebalance_timeout_ms=1000, subscribed_topic_names=["t"])
    assert answer.error_code == 0
    assert not driver.group.members[old].is_classic
    driver.beat(old, 1, {"t": numbers(0, 1)})
    driver.advance(REBALANCE_S + 1)
    assert set(driver.group.members) == {old, "new"}
    holds(driver)


# What is too large, or cannot be understood


def test_a_group_that_one_batch_cannot_hold_stays_classic(driver: ConsumerDriver) -> None:
    settled_classic(driver)
    classic = driver.classic
    driver.settings = GroupSettings(initial_rebalance_delay_ms=0, max_batch_bytes=300)
    assert driver.join("new", "t").error_code == UnknownServerError.code
    assert driver.classic is classic
    assert classic.state == "Stable"
    holds(driver)


def test_a_group_that_one_batch_cannot_hold_does_not_go_back(driver: ConsumerDriver) -> None:
    old = settled_classic(driver)
    driver.join("new", "t")
    driver.settings = GroupSettings(initial_rebalance_delay_ms=0, max_batch_bytes=300)
    assert driver.leave("new").error_code == 0
    assert driver.group.members.keys() == {old}
    assert driver.beat_classic(old, 1).error_code == RebalanceInProgressError.code
    holds(driver)


# Where the cluster gives the protocol up


def without_protocol(driver: ConsumerDriver) -> None:
    driver.settings = dataclasses.replace(driver.settings, group_version=0)
    driver.apply(driver.shard.end_consumer_protocol(driver.now))
    driver.advance(0)


def test_a_group_without_members_becomes_an_empty_classic_one(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.leave("a")
    epoch = driver.group.epoch
    without_protocol(driver)
    assert (driver.classic.state_name(), driver.classic.generation) == ("Empty", epoch)
    assert driver.classic.protocol_type == "consumer"
    holds(driver)
    # Members of the classic protocol find it.
    member = settled_classic(driver)
    assert driver.beat_classic(member, driver.classic.generation).error_code == 0


def test_members_of_the_given_up_protocol_are_out_and_those_of_the_classic_one_stay(driver: ConsumerDriver) -> None:
    old = settled_classic(driver)
    driver.join("new", "t")
    without_protocol(driver)
    assert list(driver.classic.members) == [old]
    assert driver.beat_classic(old, driver.classic.generation).error_code == RebalanceInProgressError.code
    assert driver.beat("new", 2).error_code == UnsupportedVersionError.code
    assert driver.join("other", "t").error_code == UnsupportedVersionError.code
    driver.advance(CLASSIC_SESSION_S + REBALANCE_S + 1)
    holds(driver)


def test_a_coordinator_that_loads_later_converts_what_it_finds(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.settings = dataclasses.replace(driver.settings, group_version=0)
    driver.crash()
    driver.advance(0)
    assert driver.classic.state_name() == "Empty"
    holds(driver)


def test_a_group_too_large_for_one_batch_goes_on_without_its_members(driver: ConsumerDriver) -> None:
    settled_classic(driver)
    driver.join("new", "t")
    driver.settings = dataclasses.replace(driver.settings, max_batch_bytes=1)
    without_protocol(driver)
    assert driver.classic.state_name() == "Empty"
    holds(driver)
