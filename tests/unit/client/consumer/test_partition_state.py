from __future__ import annotations

import pytest

from braidlog.client.consumer.partition_state import AWAITING_RESET, FETCHING, INITIALISING
from braidlog.client.consumer.subscription_state import SubscriptionState
from braidlog.core.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_a_failure_is_raised_once_and_only_while_it_holds() -> None:
    state = SubscriptionState()
    state.assign([A0, A1])
    for each in (A0, A1):
        state.state(each).seek(1)
    first, second = ValueError("first"), ValueError("second")
    state.fail(state.state(A0), first)
    state.fail(state.state(A1), second)
    assert not state.state(A0).is_fetchable()
    state.state(A0).seek(3)
    assert state.take_failure() is second
    assert state.take_failure() is None
    assert state.state(A1).is_fetchable()
    gone = state.state(A1)
    state.fail(gone, first)
    state.assign([A0])
    assert state.take_failure() is None


def test_phases_move_as_drawn() -> None:
    state = SubscriptionState()
    state.assign([A0])
    partition = state.state(A0)
    version = partition.version
    partition.request_reset(-2)
    assert partition.phase == AWAITING_RESET
    partition.seek(4, 2)
    assert partition.phase == FETCHING
    assert partition.version > version
    with pytest.raises(RuntimeError, match=r"a-0 fetching at 4.*initialising"):
        partition.move(INITIALISING)


def test_pauses_double_until_something_succeeds() -> None:
    state = SubscriptionState()
    state.assign([A0])
    partition = state.state(A0)
    pauses = []
    for _ in range(5):
        partition.back_off(100.0, 0.1, 1.0)
        pauses.append(round(partition.retry_at - 100.0, 3))
    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.0]
    partition.seek(3)
    assert partition.retry_at == 0.0
    partition.back_off(100.0, 0.1, 1.0)
    assert partition.retry_at == 100.1
