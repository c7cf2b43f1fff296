from __future__ import annotations

import pytest

from braidlog.coordinator.group.consumer.member import (
    AWAY,
    NEW_PROFILE,
    STABLE,
    UNREVOKED,
    Assignment,
    ConsumerGroupMember,
    Profile,
    Progress,
    holds_all,
    in_order,
    partitions_of,
)
from braidlog.core.protocol_errors import FencedMemberEpochError, UnreleasedInstanceIdError

HELD: Assignment = {b"t": frozenset({0, 1})}


def member(epoch: int, previous_epoch: int = -1) -> ConsumerGroupMember:
    return ConsumerGroupMember("m", NEW_PROFILE, Progress(epoch, previous_epoch, STABLE, HELD))


def test_partitions_are_gathered_by_topic() -> None:
    assert partitions_of([(b"a", [1]), (b"b", []), (b"a", [2, 1])]) == {b"a": frozenset({1, 2})}


def test_the_same_partitions_always_look_the_same() -> None:
    assert in_order({b"b": frozenset({2, 0}), b"a": frozenset({1})}) == [(b"a", [1]), (b"b", [0, 2])]


def test_holding_all_of_a_part() -> None:
    assert holds_all(HELD, {b"t": frozenset({1})})
    assert holds_all(HELD, {})
    assert not holds_all(HELD, {b"t": frozenset({2})})
    assert not holds_all(HELD, {b"u": frozenset({0})})


def test_a_member_that_missed_a_response_comes_with_the_epoch_before() -> None:
    member(5).validate_epoch(5, None)
    member(5, 4).validate_epoch(4, {b"t": frozenset({0})})
    for epoch, owned in ((4, None), (4, {b"t": frozenset({9})}), (3, {}), (6, {})):
        with pytest.raises(FencedMemberEpochError, match="join again"):
            member(5, 4).validate_epoch(epoch, owned)


def test_an_instance_is_taken_over_once_its_member_is_away() -> None:
    ConsumerGroupMember("m", Profile(instance_id="i"), Progress(AWAY)).require_released("new")
    with pytest.raises(UnreleasedInstanceIdError, match="'i' belongs to member 'm'"):
        ConsumerGroupMember("m", Profile(instance_id="i"), Progress(3)).require_released("new")


def test_reconciled_means_stable_in_that_epoch() -> None:
    assert Progress(3).is_reconciled_to(3)
    assert not Progress(3).is_reconciled_to(4)
    assert not Progress(3, state=UNREVOKED).is_reconciled_to(3)
