from __future__ import annotations

import pytest

from support.classic_groups import GROUP, REBALANCE_MS, SESSION_MS, ClassicDriver
from support.responders import RecordingResponder

UNKNOWN_MEMBER_ID = 25


@pytest.fixture
def driver() -> ClassicDriver:
    return ClassicDriver()


def test_the_initial_delay_grows_while_members_come_but_not_beyond_the_rebalance_timeout(
    driver: ClassicDriver,
) -> None:
    responders = [driver.enter(rebalance_ms=10_000)[1]]
    for _ in range(3):
        driver.advance(2.0)
        assert not responders[0].answered
        responders.append(driver.enter(rebalance_ms=10_000)[1])
    driver.advance(2.5)
    assert not responders[0].answered
    driver.enter(rebalance_ms=10_000)
    driver.advance(2.0)
    assert [responder.error_code for responder in responders] == [0, 0, 0, 0]
    assert len(responders[0].response.members) == 5
    assert [len(responder.response.members) for responder in responders[1:]] == [0, 0, 0]


def test_a_join_waits_for_members_that_were_given_an_id(driver: ClassicDriver) -> None:
    (first,) = driver.stable()
    pending = driver.join()
    driver.join(first)
    assert driver.group().state == "PreparingRebalance"
    again = driver.responders[-1]
    assert not again.answered
    other = driver.join(pending.response.member_id)
    assert (again.error_code, other.error_code) == (0, 0)
    assert again.response.generation_id == 2


def test_a_member_that_never_comes_back_with_its_id_is_forgotten_after_its_session(driver: ClassicDriver) -> None:
    (first,) = driver.stable()
    pending = driver.join()
    again = driver.join(first)
    driver.advance(SESSION_MS / 1000)
    assert again.error_code == 0
    assert driver.join(pending.response.member_id).error_code == UNKNOWN_MEMBER_ID


def test_members_that_do_not_join_again_in_time_are_out(driver: ClassicDriver) -> None:
    leader, follower = driver.stable(2)
    again = driver.join(leader)
    for _ in range(12):
        driver.heartbeat(follower, 1)
        driver.advance(REBALANCE_MS / 12_000)
    assert again.response.generation_id == 2
    assert [member.member_id for member in again.response.members] == [leader]
    assert driver.heartbeat(follower, 2).error_code == UNKNOWN_MEMBER_ID


def test_a_new_member_whose_client_went_away_is_out_after_five_minutes(driver: ClassicDriver) -> None:
    (leader,) = driver.stable(rebalance_ms=900_000)
    _, lost = driver.enter(rebalance_ms=900_000)
    for _ in range(60):
        assert not lost.answered
        driver.heartbeat(leader, 1)
        driver.advance(5.0)
    assert lost.error_code == UNKNOWN_MEMBER_ID
    assert list(driver.group().members) == [leader]


def test_a_static_member_survives_a_rebalance_that_it_slept_through_until_its_session_ends(
    driver: ClassicDriver,
) -> None:
    ids = driver.stable_static("a", "b")
    again = driver.join(ids["a"], instance="a", rebalance_ms=7_000, session_ms=30_000)
    assert not again.answered
    driver.advance(10.0)
    assert again.error_code == 0
    assert list(driver.group().static_members) == ["a"]


def test_three_hundred_members_that_join_at_once_settle_in_one_generation(driver: ClassicDriver) -> None:
    asked = [driver.join(client=f"c{number}") for number in range(300)]
    joined = [driver.join(responder.response.member_id) for responder in asked]
    driver.advance(6.0)
    assert {responder.error_code for responder in joined} == {0}
    driver.settle(*[responder.response.member_id for responder in joined])
    assert driver.group().generation == 1


def test_three_hundred_members_that_come_to_a_stable_group_one_by_one_never_hear_that_they_are_unknown(
    driver: ClassicDriver,
) -> None:
    members = driver.stable(1)
    joins: dict[str, RecordingResponder] = {}
    for number in range(300):
        newcomer, joins[newcomer] = driver.enter(client=f"c{number}")
        members.append(newcomer)
        if number % 50 == 49:
            for member in members:
                if member not in joins or joins[member].answered:
                    joins[member] = driver.join(member)
            assert driver.group().state == "CompletingRebalance"
    assert {responder.error_code for responder in joins.values()} == {0}
    driver.settle(*members)
    assert len(driver.group(GROUP).members) == 301


def test_a_negative_rebalance_timeout_is_none(driver: ClassicDriver) -> None:
    joining = driver.join(version=3, rebalance_ms=-(2**31))
    driver.advance(3.0)
    driver.settle(joining.response.member_id)
    value = driver.last_value()
    assert value is not None
    assert value.members[0].rebalance_timeout == SESSION_MS
    assert driver.rebuilt().durable_state() == driver.shard.durable_state()


UNKNOWN_MEMBER_ID = 25


REBALANCE_IN_PROGRESS = 27


def test_members_that_do_not_sync_within_the_rebalance_timeout_are_out(driver: ClassicDriver) -> None:
    leader, follower = (driver.enter()[0] for _ in range(2))
    driver.advance(6.0)
    waiting = driver.sync(follower, 1)
    for _ in range(int(REBALANCE_MS / 5_000)):
        driver.heartbeat(leader, 1)
        driver.advance(5.0)
    assert waiting.error_code == REBALANCE_IN_PROGRESS
    assert list(driver.group().members) == [follower]
    assert driver.group().leader == follower
    assert driver.join(follower).response.generation_id == 2


def test_a_stable_group_also_loses_a_follower_that_never_syncs(driver: ClassicDriver) -> None:
    leader, follower = (driver.enter()[0] for _ in range(2))
    driver.advance(6.0)
    driver.sync(leader, 1, {})
    for _ in range(int(REBALANCE_MS / 5_000)):
        driver.heartbeat(leader, 1)
        driver.heartbeat(follower, 1)
        driver.advance(5.0)
    assert list(driver.group().members) == [leader]
    assert driver.heartbeat(leader, 1).error_code == REBALANCE_IN_PROGRESS


def test_a_silent_member_is_out_after_its_session_and_its_group_empty(driver: ClassicDriver) -> None:
    (member,) = driver.stable()
    driver.advance(SESSION_MS / 1000 - 1)
    assert driver.heartbeat(member, 1).error_code == 0
    driver.advance(SESSION_MS / 1000 - 1)
    assert driver.group().state == "Stable"
    driver.advance(1.0)
    assert driver.group().state == "Empty"
    assert driver.group().generation == 2
    value = driver.last_value()
    assert value is not None
    assert (value.generation, value.members, value.protocol, value.leader) == (2, [], None, None)
    assert value.protocol_type == "consumer"
    assert value.current_state_timestamp == driver.now.wall_ms
    assert driver.heartbeat(member, 2).error_code == UNKNOWN_MEMBER_ID


def test_a_silent_member_costs_the_others_a_rebalance(driver: ClassicDriver) -> None:
    first, second = driver.stable(2)
    driver.advance(9.0)
    driver.heartbeat(second, 1)
    driver.advance(1.0)
    assert driver.heartbeat(second, 1).error_code == REBALANCE_IN_PROGRESS
    answer = driver.join(second).response
    assert (answer.generation_id, answer.leader) == (2, second)
    assert first not in driver.group().members


def test_sessions_do_not_end_while_a_join_waits(driver: ClassicDriver) -> None:
    first, second = driver.stable(2)
    waiting = driver.join(first)
    for _ in range(5):
        driver.advance(8.0)
        assert driver.heartbeat(second, 1).error_code == REBALANCE_IN_PROGRESS
    assert driver.join(second).error_code == 0
    assert waiting.error_code == 0


def test_a_late_timer_does_not_cost_a_member_that_was_just_answered_its_session(driver: ClassicDriver) -> None:
    first, second = driver.stable(2, rebalance_ms=4_000)
    driver.advance(5.5)
    driver.heartbeat(second, 1)
    waiting = driver.join(first, rebalance_ms=4_000)
    # The first one's session would have ended just after the others' time to join.
    driver.advance(3.9)
    driver.stall(0.8)
    assert waiting.error_code == 0
    assert driver.heartbeat(first, 2).error_code == 0


def test_a_broker_that_stood_still_first_reads_what_members_sent_meanwhile(driver: ClassicDriver) -> None:
    lively, silent = driver.stable(2)
    driver.stall(60.0)
    assert driver.heartbeat(lively, 1).error_code == 0
    driver.advance(1.0)
    assert list(driver.group().members) == [lively]
    assert silent not in driver.group().members
