from __future__ import annotations

import pytest

from braidlog.coordinator.group.settings import GroupSettings
from support.classic_groups import ClassicDriver, subscription

UNKNOWN_MEMBER_ID = 25
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
FENCED_INSTANCE_ID = 82


@pytest.fixture
def driver() -> ClassicDriver:
    return ClassicDriver()


def test_a_first_member_is_given_an_id_and_leads_after_the_initial_delay(driver: ClassicDriver) -> None:
    asked = driver.join(client="app")
    assert asked.error_code == MEMBER_ID_REQUIRED
    assert asked.response.member_id == "app-id1"
    joined = driver.join(asked.response.member_id)
    driver.advance(2.9)
    assert not joined.answered
    driver.advance(0.2)
    answer = joined.response
    assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, "app-id1")
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")
    assert [member.member_id for member in answer.members] == ["app-id1"]


def test_old_versions_join_in_one_step(driver: ClassicDriver) -> None:
    joined = driver.join(version=3)
    driver.advance(3.0)
    assert joined.response.member_id == "app-id1"


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, -1])
def test_session_timeouts_outside_of_the_bounds_are_refused(driver: ClassicDriver, session_ms: int) -> None:
    assert driver.join(session_ms=session_ms).error_code == INVALID_SESSION_TIMEOUT
    assert driver.shard.groups == {}


def test_an_empty_group_id_is_refused(driver: ClassicDriver) -> None:
    assert driver.join(group="").error_code == INVALID_GROUP_ID
    assert driver.sync("m", 1, group="").error_code == INVALID_GROUP_ID
    assert driver.heartbeat("m", 1, group="").error_code == INVALID_GROUP_ID
    assert driver.leave("m", group="").error_code == INVALID_GROUP_ID


def test_an_id_that_the_group_never_gave_is_refused(driver: ClassicDriver) -> None:
    assert driver.join("stranger").error_code == UNKNOWN_MEMBER_ID
    assert driver.shard.groups == {}
    driver.stable()
    assert driver.join("stranger").error_code == UNKNOWN_MEMBER_ID


def test_a_member_must_share_type_and_a_protocol(driver: ClassicDriver) -> None:
    assert driver.join(protocols={}).error_code == INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(protocol_type="").error_code == INCONSISTENT_GROUP_PROTOCOL
    assert driver.shard.groups == {}
    driver.stable()
    assert driver.join(protocol_type="connect").error_code == INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(protocols={"sticky": b""}).error_code == INCONSISTENT_GROUP_PROTOCOL
    assert driver.join(protocols={"sticky": b"", "range": b""}).error_code == MEMBER_ID_REQUIRED


def test_the_protocol_is_chosen_by_vote_among_those_that_all_support(driver: ClassicDriver) -> None:
    for offered in ("abc", "bca", "cb", "bc"):
        driver.enter(protocols={name: name.encode() for name in offered})
    driver.advance(6.0)
    assert driver.group().protocol_name == "b"
    leader = next(responder for responder in driver.responders if responder.error_code == 0)
    assert [member.metadata for member in leader.response.members] == [b"b"] * 4


def test_a_group_takes_no_more_than_its_size(driver: ClassicDriver) -> None:
    driver.settings = GroupSettings(max_size=2)
    driver.stable(2)
    assert driver.join().error_code == GROUP_MAX_SIZE_REACHED
    assert driver.group().state == "Stable"


def test_a_group_that_became_too_large_loses_the_last_to_join_again(driver: ClassicDriver) -> None:
    members = driver.stable(3)
    driver.settings = GroupSettings(max_size=2)
    first, second, third = (driver.join(member) for member in members)
    assert third.error_code == GROUP_MAX_SIZE_REACHED
    assert (first.error_code, second.error_code) == (0, 0)
    assert list(driver.group().members) == members[:2]


def test_a_leader_that_joins_again_starts_a_rebalance_a_follower_is_told_of_the_generation(
    driver: ClassicDriver,
) -> None:
    leader, follower = driver.stable(2)
    reported = driver.join(follower).response
    assert (reported.generation_id, reported.leader, reported.members) == (1, leader, [])
    assert driver.group().state == "Stable"
    again = driver.join(leader)
    assert not again.answered
    assert driver.group().state == "PreparingRebalance"
    assert driver.heartbeat(follower, 1).error_code == REBALANCE_IN_PROGRESS
    assert driver.join(follower).response.generation_id == 2


def test_a_follower_that_changed_starts_a_rebalance(driver: ClassicDriver) -> None:
    leader, follower = driver.stable(2)
    driver.join(follower, protocols={"range": subscription("t", "u")})
    assert driver.group().state == "PreparingRebalance"
    answer = driver.join(leader).response
    assert [member.metadata for member in answer.members] == [subscription("t"), subscription("t", "u")]


def test_while_the_assignment_is_awaited_an_unchanged_member_is_told_again(driver: ClassicDriver) -> None:
    member, joined = driver.enter()
    driver.advance(3.0)
    again = driver.join(member)
    assert again.response == joined.response
    driver.join(member, protocols={"range": subscription("u")})
    assert driver.group().generation == 2


def test_a_newer_join_of_the_same_member_takes_the_place_of_the_older(driver: ClassicDriver) -> None:
    member, first = driver.enter()
    second = driver.join(member)
    assert first.error_code == REBALANCE_IN_PROGRESS
    driver.advance(3.0)
    assert second.error_code == 0
    assert driver.group().num_awaiting_join == 0


# Static members


def test_a_static_member_that_restarts_takes_its_old_place_without_a_rebalance(driver: ClassicDriver) -> None:
    members = driver.stable_static("a", "b")
    assert driver.group().leader == members["a"]
    back = driver.join(instance="b").response
    assert (back.error_code, back.generation_id, back.leader) == (0, 1, members["a"])
    assert back.member_id != members["b"]
    assert driver.group().state == "Stable"
    assert driver.sync(back.member_id, 1, instance="b").response.assignment == members["b"].encode()
    assert driver.heartbeat(members["b"], 1, instance="b").error_code == FENCED_INSTANCE_ID
    assert driver.sync(members["b"], 1, instance="b").error_code == FENCED_INSTANCE_ID
    assert driver.join(members["b"], instance="b").error_code == FENCED_INSTANCE_ID
    assert driver.commit(1, members["b"], 1, instance="b").error_code == FENCED_INSTANCE_ID
    assert driver.commit(1, back.member_id, 1, instance="b").error_code == 0


def test_a_static_leader_that_restarts_is_told_not_to_assign(driver: ClassicDriver) -> None:
    members = driver.stable_static("a", "b")
    back = driver.join(instance="a", version=9).response
    assert back.skip_assignment
    assert back.leader == back.member_id
    assert [member.group_instance_id for member in back.members] == ["b", "a"]
    assert driver.sync(back.member_id, 1, instance="a").response.assignment == members["a"].encode()


def test_an_older_static_leader_takes_itself_for_a_follower(driver: ClassicDriver) -> None:
    members = driver.stable_static("a", "b")
    back = driver.join(instance="a", version=8).response
    assert not back.skip_assignment
    assert (back.leader, back.members) == (members["a"], [])
    assert driver.group().leader == back.member_id


def test_a_static_member_that_comes_back_with_another_favourite_starts_a_rebalance(driver: ClassicDriver) -> None:
    both = {"range": b"", "sticky": b""}
    waiting = driver.join(instance="a", protocols=both)
    driver.advance(3.0)
    driver.sync(waiting.response.member_id, 1, {}, instance="a")
    assert driver.group().protocol_name == "range"
    back = driver.join(instance="a", protocols={"sticky": b"", "range": b""})
    assert back.response.generation_id == 2
    assert back.response.protocol_name == "sticky"


def test_a_static_member_replaced_while_it_waits_is_fenced(driver: ClassicDriver) -> None:
    first = driver.join(instance="a")
    second = driver.join(instance="a")
    assert first.error_code == FENCED_INSTANCE_ID
    driver.advance(3.0)
    assert second.error_code == 0
    waiting = driver.join(instance="b")
    driver.join(second.response.member_id, instance="a")
    assert waiting.error_code == 0
    sync = driver.sync(waiting.response.member_id, 2, instance="b")
    driver.join(instance="b")
    assert sync.error_code == FENCED_INSTANCE_ID
    assert driver.group().state == "PreparingRebalance"


def test_the_answer_of_a_static_member_is_durable_before_a_crash(driver: ClassicDriver) -> None:
    members = driver.stable_static("a", "b")
    back = driver.join(instance="b").response
    driver.crash()
    assert driver.group().static_members == {"a": members["a"], "b": back.member_id}
    assert driver.heartbeat(back.member_id, 1, instance="b").error_code == 0
