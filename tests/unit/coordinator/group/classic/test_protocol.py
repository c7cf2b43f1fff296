from __future__ import annotations

import pytest

from support.classic_groups import SESSION_MS, ClassicDriver, subscription

UNKNOWN_SERVER_ERROR = -1
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
INVALID_REQUEST = 42
FENCED_INSTANCE_ID = 82


@pytest.fixture
def driver() -> ClassicDriver:
    return ClassicDriver()


# Sync


def test_followers_get_their_part_when_the_leader_brings_it(driver: ClassicDriver) -> None:
    members = [driver.enter()[0] for _ in range(3)]
    driver.advance(6.0)
    leader, second, third = members
    waiting = driver.sync(second, 1)
    assert not waiting.answered
    written = len(driver.log)
    driver.sync(leader, 1, {leader: b"1", second: b"2"})
    assert len(driver.log) == written + 1
    assert driver.responders[-1].response.assignment == b"1"
    assert waiting.response.assignment == b"2"
    assert (waiting.response.protocol_type, waiting.response.protocol_name) == ("consumer", "range")
    late = driver.sync(third, 1)
    assert late.response.assignment == b""
    value = driver.last_value()
    assert value is not None
    assert (value.generation, value.leader, value.protocol_type, value.protocol) == (1, leader, "consumer", "range")
    assert [(member.member_id, member.assignment) for member in value.members] == [
        (leader, b"1"),
        (second, b"2"),
        (third, b""),
    ]


def test_a_sync_must_name_member_generation_and_protocol_right(driver: ClassicDriver) -> None:
    assert driver.sync("m", 1).error_code == UNKNOWN_MEMBER_ID
    (member,) = driver.stable()
    assert driver.sync("m", 1).error_code == UNKNOWN_MEMBER_ID
    assert driver.sync(member, 2).error_code == ILLEGAL_GENERATION
    assert driver.sync(member, 1, protocol_type="connect").error_code == INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync(member, 1, protocol_name="sticky").error_code == INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync(member, 1, protocol_type="consumer", protocol_name="range").error_code == 0


def test_syncs_that_wait_are_sent_back_when_another_member_comes(driver: ClassicDriver) -> None:
    leader, follower = (driver.enter()[0] for _ in range(2))
    driver.advance(6.0)
    waiting = driver.sync(follower, 1)
    driver.enter()
    assert waiting.error_code == REBALANCE_IN_PROGRESS
    assert driver.sync(leader, 1, {}).error_code == REBALANCE_IN_PROGRESS
    assert driver.group().state == "PreparingRebalance"


def test_a_newer_sync_of_the_same_member_takes_the_place_of_the_older(driver: ClassicDriver) -> None:
    leader, follower = (driver.enter()[0] for _ in range(2))
    driver.advance(6.0)
    first, second = driver.sync(follower, 1), driver.sync(follower, 1)
    assert first.error_code == REBALANCE_IN_PROGRESS
    driver.sync(leader, 1, {follower: b"x"})
    assert second.response.assignment == b"x"


# Heartbeats and sessions


def test_a_heartbeat_must_name_member_and_generation_right(driver: ClassicDriver) -> None:
    assert driver.heartbeat("m", 1).error_code == UNKNOWN_MEMBER_ID
    (member,) = driver.stable()
    assert driver.heartbeat(member, 1).error_code == 0
    assert driver.heartbeat(member, 0).error_code == ILLEGAL_GENERATION
    assert driver.heartbeat("m", 1).error_code == UNKNOWN_MEMBER_ID


def test_a_member_that_waits_for_its_assignment_may_send_heartbeats(driver: ClassicDriver) -> None:
    member, _ = driver.enter()
    driver.advance(3.0)
    assert driver.group().state == "CompletingRebalance"
    assert driver.heartbeat(member, 1).error_code == 0


def test_commits_keep_a_session_alive(driver: ClassicDriver) -> None:
    (member,) = driver.stable()
    for _ in range(5):
        driver.advance(8.0)
        assert driver.commit(1, member, 1).response.topics[0].partitions[0].error_code == 0
    assert driver.heartbeat(member, 1).error_code == 0


# Leave


def test_a_member_leaves_at_once(driver: ClassicDriver) -> None:
    first, second = driver.stable(2)
    left = driver.leave(second, "stranger").response
    assert [(member.member_id, member.error_code) for member in left.members] == [
        (second, 0),
        ("stranger", UNKNOWN_MEMBER_ID),
    ]
    assert driver.heartbeat(first, 1).error_code == REBALANCE_IN_PROGRESS
    driver.leave(first)
    assert driver.group().state == "Empty"
    assert driver.leave(first).response.members[0].error_code == UNKNOWN_MEMBER_ID


def test_old_versions_leave_one_at_a_time(driver: ClassicDriver) -> None:
    assert driver.leave("m", version=2).response.error_code == UNKNOWN_MEMBER_ID
    (member,) = driver.stable()
    assert driver.leave("m", version=1).response.error_code == UNKNOWN_MEMBER_ID
    assert driver.leave(member, version=0).response.error_code == 0
    assert driver.group().state == "Empty"


def test_static_members_leave_by_instance_and_a_replaced_one_is_fenced(driver: ClassicDriver) -> None:
    members = driver.stable_static("a", "b")
    new = driver.join(instance="b").response.member_id
    left = driver.leave((members["b"], "b"), ("", "a"), ("", "c"), (new, "a")).response
    assert [member.error_code for member in left.members] == [
        FENCED_INSTANCE_ID,
        0,
        UNKNOWN_MEMBER_ID,
        UNKNOWN_MEMBER_ID,
    ]
    assert [member.group_instance_id for member in left.members] == ["b", "a", "c", "a"]


def test_a_pending_member_may_leave_which_lets_the_others_go_on(driver: ClassicDriver) -> None:
    (first,) = driver.stable()
    pending = driver.join().response.member_id
    waiting = driver.join(first)
    assert not waiting.answered
    assert driver.leave(pending).response.members[0].error_code == 0
    assert waiting.error_code == 0


def test_a_pending_member_that_leaves_a_stable_group_disturbs_nobody(driver: ClassicDriver) -> None:
    (member,) = driver.stable()
    assert driver.leave(driver.join().response.member_id).response.members[0].error_code == 0
    assert driver.heartbeat(member, 1).error_code == 0


def test_who_leaves_while_it_waits_is_answered(driver: ClassicDriver) -> None:
    (leader,) = driver.stable()
    member, waiting = driver.enter()
    driver.leave(member)
    assert waiting.error_code == UNKNOWN_MEMBER_ID
    driver.join(leader)
    assert driver.group().state == "CompletingRebalance"


def test_all_may_leave_during_the_initial_delay(driver: ClassicDriver) -> None:
    member, _ = driver.enter()
    driver.leave(member)
    driver.advance(3.0)
    assert driver.group().state == "Empty"
    driver.stable()


# Cooperative rebalancing is two rebalances in a row


def test_a_member_that_gave_up_a_partition_joins_again_and_another_gets_it(driver: ClassicDriver) -> None:
    how = {"protocols": {"cooperative-sticky": subscription("t", version=1)}}
    (first,) = driver.stable(**how)
    second, joined = driver.enter(**how)
    again = driver.join(first, **how)
    assert (again.response.generation_id, joined.response.generation_id) == (2, 2)
    waiting = driver.sync(second, 2)
    driver.sync(first, 2, {first: b"one of two", second: b""})
    assert waiting.response.assignment == b""
    revoked = {"protocols": {"cooperative-sticky": subscription("t", version=2)}}
    driver.join(first, **revoked)
    assert driver.heartbeat(second, 2).error_code == REBALANCE_IN_PROGRESS
    third = driver.join(second, **how)
    assert third.response.generation_id == 3
    driver.sync(first, 3, {first: b"one of two", second: b"the other"})
    assert driver.sync(second, 3).response.assignment == b"the other"


# What the log cannot take


def test_a_generation_that_is_too_large_to_be_written_down_is_not_begun(driver: ClassicDriver) -> None:
    first, second = driver.stable(2)
    before = driver.last_value()
    driver.join(first)
    driver.join(second)
    generation = driver.group().generation
    waiting = driver.sync(second, generation)
    leading = driver.sync(first, generation, {first: bytes(2_000_000)})
    assert (waiting.error_code, leading.error_code) == (UNKNOWN_SERVER_ERROR, UNKNOWN_SERVER_ERROR)
    assert driver.group().state == "PreparingRebalance"
    assert driver.last_value() == before
    assert driver.rebuilt().durable_state() == driver.shard.durable_state()
    # The next generation is as good as any.
    driver.join(first)
    driver.join(second)
    driver.settle(first, second)


def test_a_static_member_that_comes_back_with_too_much_starts_a_rebalance(driver: ClassicDriver) -> None:
    driver.stable_static("a", "b")
    records = len(driver.log)
    back = driver.join(instance="a", protocols={"range": bytes(2_000_000)})
    assert not back.answered
    assert driver.group().state == "PreparingRebalance"
    assert len(driver.log) == records
    assert driver.rebuilt().durable_state() == driver.shard.durable_state()


@pytest.mark.parametrize("version", [3, 9])
def test_an_id_too_long_for_any_record_is_refused(driver: ClassicDriver, version: int) -> None:
    assert driver.join(client="c" * 32767, version=version).error_code == INVALID_REQUEST
    assert driver.join(instance="i" * 32767, version=version).error_code == INVALID_REQUEST
    assert driver.shard.groups == {}


def test_a_static_member_whose_sync_was_refused_is_missed_when_it_stays_silent(driver: ClassicDriver) -> None:
    leader, follower = driver.stable_static("a", "b").values()
    assert driver.group().leader == leader
    driver.join(leader, instance="a")
    driver.join(follower, instance="b")
    generation = driver.group().generation
    waiting = driver.sync(follower, generation, instance="b")
    for _ in range(3):
        driver.advance(SESSION_MS / 2000)
        driver.heartbeat(leader, generation, instance="a")
    # Its session has ended meanwhile, which does not count for one that waits.
    assert not waiting.answered
    driver.join(leader, instance="a", protocols={"range": subscription("t", "u")})
    assert waiting.error_code == REBALANCE_IN_PROGRESS
    assert follower in driver.group().members
    driver.advance(SESSION_MS / 1000)
    assert driver.group().members.keys() == {leader}
