from __future__ import annotations

import pytest

from braidlog.coordinator.effects import Effects
from braidlog.coordinator.group.classic.group import (
    COMPLETING,
    EMPTY,
    STABLE,
    TRANSITIONS,
    IllegalGroupTransitionError,
)
from braidlog.core.protocol_errors import CoordinatorNotAvailableError
from support.classic_groups import ClassicDriver, subscription

COORDINATOR_NOT_AVAILABLE = 15
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27


@pytest.fixture
def driver() -> ClassicDriver:
    return ClassicDriver()


# Commits


def test_simple_commits_are_taken_while_nobody_is_in(driver: ClassicDriver) -> None:
    assert driver.commit(1).error_code == 0
    assert driver.commit(2, "whoever", -1).error_code == 0
    member, _ = driver.enter()
    assert driver.commit(3).error_code == UNKNOWN_MEMBER_ID
    driver.leave(member)
    driver.advance(3.0)
    assert driver.commit(4).error_code == 0
    assert driver.committed() == 4


def test_a_commit_must_name_member_and_generation_right_and_waits_for_the_assignment(driver: ClassicDriver) -> None:
    member, _ = driver.enter()
    driver.advance(3.0)
    assert driver.commit(1, member, 1).error_code == REBALANCE_IN_PROGRESS
    assert driver.commit(1, "m", 1).error_code == UNKNOWN_MEMBER_ID
    driver.settle(member)
    assert driver.commit(1, member, 1).error_code == 0
    assert driver.commit(1, member, 0).error_code == ILLEGAL_GENERATION
    assert driver.commit(1, "m", 1).error_code == UNKNOWN_MEMBER_ID
    driver.join()
    driver.join(member)
    assert driver.group().state == "PreparingRebalance"
    assert driver.commit(2, member, 1).error_code == 0


def test_transactional_commits_are_fenced_only_if_they_say_who_they_are(driver: ClassicDriver) -> None:
    (member,) = driver.stable()
    group = driver.group()
    group.validate_offset_commit("", None, -1, True, 3)
    group.validate_offset_commit(member, None, 1, True, 3)
    for member_id, instance, generation, code in (
        ("m", None, 1, UNKNOWN_MEMBER_ID),
        (member, None, 0, ILLEGAL_GENERATION),
        (member, "a", 1, UNKNOWN_MEMBER_ID),
    ):
        with pytest.raises(Exception) as refused:
            group.validate_offset_commit(member_id, instance, generation, True, 3)
        assert getattr(refused.value, "code", None) == code


def test_a_dead_group_sends_its_members_to_look_for_the_coordinator(driver: ClassicDriver) -> None:
    (member,) = driver.stable()
    group = driver.group()
    effects = Effects()
    driver.shard.classic.dissolve(group, CoordinatorNotAvailableError(), driver.now, effects)
    assert driver.heartbeat(member, 1).error_code == COORDINATOR_NOT_AVAILABLE
    assert driver.join(member).error_code == COORDINATOR_NOT_AVAILABLE
    assert driver.commit(1, member, 1).error_code == COORDINATOR_NOT_AVAILABLE
    assert driver.leave(member).error_code == COORDINATOR_NOT_AVAILABLE


# Subscriptions


def test_topics_are_subscribed_as_members_say(driver: ClassicDriver) -> None:
    driver.stable(protocols={"range": subscription("t", "u", version=3)})
    group = driver.group()
    assert [group.is_subscribed_to(topic) for topic in ("t", "u", "v")] == [True, True, False]
    driver.crash()
    group = driver.group()
    assert [group.is_subscribed_to(topic) for topic in ("t", "u", "v")] == [True, True, False]


@pytest.mark.parametrize("foreign", [b"", b"\0", b"\0\0\x7f\xff", b"\xff\xff\0\0\0\0", b"hello world"])
def test_members_that_cannot_be_understood_may_read_anything(driver: ClassicDriver, foreign: bytes) -> None:
    (member,) = driver.stable(protocols={"range": foreign})
    assert driver.group().is_subscribed_to("v")
    assert driver.group().offsets_age_from(5) is None
    driver.leave(member)
    assert not driver.group().is_subscribed_to("v")


def test_a_group_of_another_kind_has_no_topics(driver: ClassicDriver) -> None:
    driver.stable(protocol_type="connect", protocols={"sessioned": b"\0\1anything"})
    assert not driver.group().is_subscribed_to("t")
    assert driver.group().offsets_age_from(5) is None


def test_offsets_age_from_when_the_last_member_went(driver: ClassicDriver) -> None:
    driver.commit(1, group="simple")
    assert driver.group("simple").offsets_age_from(5) == 5
    (member,) = driver.stable()
    assert driver.group().offsets_age_from(5) == 5
    driver.advance(1.0)
    driver.leave(member)
    left = driver.now.wall_ms
    driver.advance(100.0)
    assert driver.group().offsets_age_from(5) == left
    driver.crash()
    assert driver.group().offsets_age_from(5) == left


# The table


def test_every_state_may_die_and_only_known_moves_are_made(driver: ClassicDriver) -> None:
    assert {state for state, moves in TRANSITIONS.items() if "Dead" not in moves} == {"Dead"}
    driver.stable()
    with pytest.raises(IllegalGroupTransitionError, match="'orders' cannot go from Stable to CompletingRebalance"):
        driver.group().transition_to(COMPLETING, 0)
    assert STABLE not in TRANSITIONS[EMPTY]
