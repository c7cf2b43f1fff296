from __future__ import annotations

from typing import Any

import pytest

from braidlog.core.protocol_errors import (
    FencedMemberEpochError,
    GroupIdNotFoundError,
    InvalidRequestError,
    NonEmptyGroupError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnsupportedVersionError,
)
from support.consumer_groups import ChangingTopics, ConsumerDriver, numbers


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver(ChangingTopics(t=4, u=2))


def described(driver: ConsumerDriver) -> Any:
    return driver.submit(lambda shard, responder, now: shard.describe_consumer_group("g", responder, now)).response


def test_the_last_member_leaves_an_empty_group_that_can_be_deleted(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    deleting = driver.submit(lambda shard, responder, now: shard.delete_group("g", responder, now))
    assert deleting.error_code == NonEmptyGroupError.code
    driver.leave("a")
    assert driver.group.state_name() == "Empty"
    assert driver.rebuilt().durable_state() == driver.shard.durable_state()
    driver.submit(lambda shard, responder, now: shard.delete_group("g", responder, now))
    assert not driver.shard.groups
    assert not driver.rebuilt().groups


def test_epochs_that_are_not_the_members(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    driver.join("b", "t")
    driver.settle("a", "b")
    assert driver.beat("a", 3).error_code == FencedMemberEpochError.code
    assert driver.beat("a", 1).error_code == FencedMemberEpochError.code
    assert driver.beat("a", 1, {"t": numbers(0, 1, 2)}).error_code == FencedMemberEpochError.code
    # It may have missed the answer that told it of the new epoch.
    assert driver.beat("a", 1, {"t": numbers(0)}).response.member_epoch == 2
    assert driver.join("a", "t").error_code == FencedMemberEpochError.code
    assert driver.beat("nobody", 2).error_code == UnknownMemberIdError.code
    assert driver.beat("", 2).error_code == InvalidRequestError.code


def test_commits_and_fetches_of_members(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    group = driver.group
    group.validate_offset_commit("a", None, 1, False, 9)
    group.validate_offset_fetch("a", 1)
    group.validate_offset_fetch(None, -1)
    for member, epoch, error in (
        ("a", 0, StaleMemberEpochError),
        ("a", -1, StaleMemberEpochError),
        ("b", 1, UnknownMemberIdError),
        ("", -1, UnknownMemberIdError),
    ):
        with pytest.raises(error):
            group.validate_offset_commit(member, None, epoch, False, 9)
        with pytest.raises(error):
            group.validate_offset_fetch(member, epoch)
    with pytest.raises(UnsupportedVersionError):
        group.validate_offset_commit("a", None, 1, False, 8)
    group.validate_offset_commit("a", None, 1, True, 3)
    group.validate_offset_commit("", None, -1, True, 3)
    driver.leave("a")
    driver.group.validate_offset_commit("", None, -1, False, 9)


def test_describe(driver: ConsumerDriver) -> None:
    driver.join("a", "t", instance_id="one", rack_id="r")
    driver.join("b", "t")
    group = described(driver)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 2, 2)
    first = group.members[0]
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", "one", "r", 1)
    assert (first.client_id, first.client_host, first.member_type) == ("client", "/1.2.3.4", 1)
    assert first.subscribed_topic_names == ["t"]
    assert [(p.topic_name, p.partitions) for p in first.assignment.topic_partitions] == [("t", [0, 1, 2, 3])]
    assert [(p.topic_name, p.partitions) for p in first.target_assignment.topic_partitions] == [("t", [0, 1])]
    driver.topics.delete("t")
    assert described(driver).members[0].assignment.topic_partitions == []
    missing = driver.submit(lambda shard, responder, now: shard.describe_consumer_group("none", responder, now))
    assert missing.error_code == GroupIdNotFoundError.code
    classic = driver.submit(lambda shard, responder, now: shard.describe_group("g", responder, now))
    assert classic.error_code == GroupIdNotFoundError.code


def test_what_the_group_tells_the_offset_store(driver: ConsumerDriver) -> None:
    driver.join("a", "t")
    assert (driver.group.kind, driver.group.offsets_age_from(7)) == ("consumer", 7)
    assert driver.group.is_subscribed_to("t")
    driver.group.validate_offset_delete()
