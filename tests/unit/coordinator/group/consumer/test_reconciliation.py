from __future__ import annotations

import pytest

from braidlog.coordinator.group.consumer.member import STABLE, UNKNOWN, UNRELEASED, UNREVOKED, Progress
from braidlog.coordinator.group.consumer.reconciliation import reconcile
from braidlog.core.protocol_errors import FencedMemberEpochError

T, U = b"t" * 16, b"u" * 16


def parts(*numbers: int) -> dict[bytes, frozenset[int]]:
    return {T: frozenset(numbers)} if numbers else {}


def nobody(topic_id: bytes, partition: int) -> bool:
    return False


def somebody(topic_id: bytes, partition: int) -> bool:
    return True


def test_a_stable_member_stays_until_the_target_changes() -> None:
    progress = Progress(3, 2, STABLE, parts(0))
    assert reconcile(progress, parts(1), 3, None, nobody) is progress


def test_a_new_member_takes_what_is_free() -> None:
    progress = reconcile(Progress(), parts(0, 1), 1, {}, nobody)
    assert progress == Progress(1, 0, STABLE, parts(0, 1))


def test_a_new_member_waits_for_what_is_not() -> None:
    progress = reconcile(Progress(), parts(0, 1), 4, {}, lambda _, number: number == 1)
    assert progress == Progress(4, 0, UNRELEASED, parts(0))


def test_what_must_go_is_asked_back_before_anything_is_given() -> None:
    progress = reconcile(Progress(1, 0, STABLE, parts(0, 1)), parts(1, 2), 2, None, nobody)
    assert progress == Progress(1, 0, UNREVOKED, parts(1), parts(0))


def test_a_member_that_says_it_owns_less_has_given_it_up() -> None:
    progress = reconcile(Progress(1, 0, STABLE, parts(0, 1)), parts(1), 2, parts(1), nobody)
    assert progress == Progress(2, 1, STABLE, parts(1))


@pytest.mark.parametrize("owned", [None, parts(0), parts(0, 1)])
def test_a_member_stays_in_its_epoch_while_it_owns_what_must_go(owned: dict[bytes, frozenset[int]] | None) -> None:
    progress = Progress(1, 0, UNREVOKED, parts(1), parts(0))
    assert reconcile(progress, parts(1, 2), 5, owned, nobody) is progress


def test_a_member_that_gave_up_what_it_had_to_goes_on_to_the_newest_target() -> None:
    progress = reconcile(Progress(1, 0, UNREVOKED, parts(1), parts(0)), parts(1, 2), 5, parts(1), nobody)
    assert progress == Progress(5, 1, STABLE, parts(1, 2))


def test_the_newest_target_may_ask_for_more_to_go() -> None:
    progress = reconcile(Progress(1, 0, UNREVOKED, parts(1), parts(0)), {U: frozenset({0})}, 5, parts(1), nobody)
    assert progress == Progress(2, 1, UNREVOKED, {}, parts(1))


def test_a_waiting_member_gets_what_becomes_free_and_keeps_its_former_epoch_in_mind() -> None:
    waiting = Progress(4, 3, UNRELEASED, parts(0))
    assert reconcile(waiting, parts(0, 1), 4, None, somebody) == waiting
    assert reconcile(waiting, parts(0, 1), 4, None, nobody) == Progress(4, 3, STABLE, parts(0, 1))


def test_a_state_from_the_future_makes_a_member_start_over() -> None:
    progress = Progress(4, 3, UNKNOWN, parts(0))
    for owned in (None, parts(0)):
        with pytest.raises(FencedMemberEpochError):
            reconcile(progress, parts(1), 5, owned, nobody)
    assert reconcile(progress, parts(1), 5, {}, nobody) == Progress(5, 4, STABLE, parts(1))
