from __future__ import annotations

import pytest

from braidlog.coordinator.group.consumer.member import UNREVOKED
from braidlog.coordinator.group.settings import GroupSettings
from braidlog.core.protocol_errors import (
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidSessionTimeoutError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from braidlog.wire.generated.join_group import JoinGroupRequestProtocol
from braidlog.wire.generated.leave_group import MemberIdentity
from support.consumer_groups import (
    CLASSIC_SESSION_S,
    REBALANCE_S,
    ChangingTopics,
    ConsumerDriver,
    numbers,
    subscription,
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


def test_a_silent_member_of_the_older_protocol_is_out_after_its_own_session(driver: ConsumerDriver) -> None:
    old = settled_classic(driver)
    driver.join("new", "t")
    driver.advance(CLASSIC_SESSION_S - 1)
    assert old in driver.group.members
    driver.beat("new", 2)
    driver.advance(2)
    assert list(driver.group.members) == ["new"]
    assert driver.beat_classic(old, 1).error_code == UnknownMemberIdError.code


def test_a_member_told_to_join_has_its_rebalance_timeout_for_it(driver: ConsumerDriver) -> None:
    old = settled_classic(driver)
    driver.join("new", "t")
    driver.beat_classic(old, 1)
    for _ in range(int(REBALANCE_S // 5) + 1):
        driver.advance(5)
        driver.beat_classic(old, 1)
        driver.beat("new", 2)
    assert list(driver.group.members) == ["new"]


def test_a_member_that_joined_has_its_rebalance_timeout_to_sync(driver: ConsumerDriver) -> None:
    old = settled_classic(driver)
    driver.join("new", "t")
    driver.join_classic(old, "t", owned={})
    for _ in range(int(REBALANCE_S // 5) + 1):
        driver.advance(5)
        driver.beat_classic(old, 2)
        driver.beat("new", 2)
    assert list(driver.group.members) == ["new"]


def test_a_member_without_an_id_is_given_one(driver: ConsumerDriver) -> None:
    driver.join("new", "t")
    before = len(driver.log)
    asked = driver.join_classic("", "t")
    assert (asked.error_code, asked.response.member_id) == (MemberIdRequiredError.code, "member-1")
    assert len(driver.log) == before
    assert driver.join_classic("", "t", version=3).response.member_id == "member-2"


def test_joins_that_do_not_fit(driver: ConsumerDriver) -> None:
    driver.join("new", "t")
    assert driver.join_classic("", "t", protocol_type="connect").error_code == InconsistentGroupProtocolError.code
    assert driver.join_classic("", "t", protocols=[]).error_code == InconsistentGroupProtocolError.code
    assert driver.join_classic("", "t", session_timeout_ms=1).error_code == InvalidSessionTimeoutError.code
    old, _ = driver.enter_classic("t")
    other = [JoinGroupRequestProtocol(name="range", metadata=subscription(["t"]))]
    assert driver.join_classic("", "t", protocols=other).error_code == InconsistentGroupProtocolError.code
    assert driver.join_classic(old, "t", protocols=other).error_code == 0
    driver.settings = GroupSettings(consumer_max_size=2)
    assert driver.join_classic("", "t", protocols=other).error_code == GroupMaxSizeReachedError.code


def test_requests_of_the_wrong_member(driver: ConsumerDriver) -> None:
    driver.join("new", "t")
    old, _ = driver.enter_classic("t", group_instance_id=None)
    assert driver.beat_classic("new", 1).error_code == UnknownMemberIdError.code
    assert driver.sync_classic("new", 1).error_code == UnknownMemberIdError.code
    assert driver.beat_classic(old, 1).error_code == IllegalGenerationError.code
    assert driver.sync_classic(old, 1).error_code == IllegalGenerationError.code
    assert driver.sync_classic(old, 2, protocol_name="range").error_code == InconsistentGroupProtocolError.code
    assert driver.sync_classic(old, 2, protocol_type="connect").error_code == InconsistentGroupProtocolError.code
    with pytest.raises(IllegalGenerationError):
        driver.group.validate_offset_commit(old, None, 1, False, 8)
    driver.group.validate_offset_commit(old, None, 2, False, 8)


def test_a_sync_that_comes_too_late_asks_to_join_again(driver: ConsumerDriver) -> None:
    driver.join("new", "t")
    old, _ = driver.enter_classic("t")
    driver.join("newer", "t")
    assert driver.sync_classic(old, 2).error_code == RebalanceInProgressError.code


def test_a_waiting_member_is_called_when_its_partitions_are_free(driver: ConsumerDriver) -> None:
    driver.join("new", "t")
    old, _ = driver.enter_classic("t")
    assert synced(driver.sync_classic(old, 2)) == {}
    assert driver.beat_classic(old, 2).error_code == 0
    kept = driver.assignment_of(driver.beat("new", 1, ALL))
    assert driver.group.members["new"].progress.state == UNREVOKED
    driver.beat("new", 1, kept)
    assert driver.beat_classic(old, 2).error_code == RebalanceInProgressError.code
    driver.join_classic(old, "t", owned={})
    assert synced(driver.sync_classic(old, 2)) == {"t": numbers(2, 3)}
    assert driver.beat_classic(old, 2).error_code == 0


def test_members_of_the_older_protocol_leave(driver: ConsumerDriver) -> None:
    driver.join("new", "t")
    old, _ = driver.enter_classic("t")
    static = driver.join_classic("", "t", group_instance_id="one").response.member_id
    answer = driver.leave_classic(old, "new", "nobody", MemberIdentity(member_id="", group_instance_id="one"))
    codes = [member.error_code for member in answer.response.members]
    assert codes == [0, UnknownMemberIdError.code, UnknownMemberIdError.code, 0]
    assert list(driver.group.members) == ["new"]
    assert static not in driver.group.members
    assert driver.leave_classic(old, version=1).error_code == UnknownMemberIdError.code
    holds(driver)


def test_what_a_member_offers_first_need_not_be_understood(driver: ConsumerDriver) -> None:
    odd = [JoinGroupRequestProtocol(name="odd", metadata=b"")]
    both = [*odd, JoinGroupRequestProtocol(name="range", metadata=subscription(["t"]))]
    only = [JoinGroupRequestProtocol(name="range", metadata=subscription(["t"]))]
    members = [driver.join_classic("", protocols=offer).response.member_id for offer in (both, only)]
    waiting = [
        driver.join_classic(member, protocols=offer) for member, offer in zip(members, (both, only), strict=True)
    ]
    driver.advance(0)
    generation = waiting[0].response.generation_id
    driver.sync_classic(members[0], generation, {members[0]: ALL, members[1]: {}}, protocol_name="range")
    driver.join("new", "t")
    assert driver.sync_classic(members[0], generation, protocol_name="range").error_code is not None
    driver.leave("new")
    assert driver.classic.members.keys() == set(members)
    holds(driver)
