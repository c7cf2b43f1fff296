from __future__ import annotations

from typing import Any

import pytest

from braidlog.coordinator.txn.transaction_metadata import (
    LAST_EPOCH,
    TransactionState,
    TxnSettings,
)
from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    ProducerFencedError,
    ProtocolError,
    TransactionalIdAuthorizationFailedError,
    UnsupportedVersionError,
)
from support.txn_shard import FRESH_ID, P0, P1, World, refusal, reported


@pytest.fixture
def world() -> World:
    return World()


def test_each_start_of_a_producer_gets_the_next_epoch(world: World) -> None:
    assert reported(world.init()) == (FRESH_ID, 0)
    assert reported(world.init()) == (FRESH_ID, 1)
    assert reported(world.init(name="other")) == (FRESH_ID + 1, 0)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"timeout_ms": 0}, InvalidTransactionTimeoutError),
        ({"timeout_ms": -1}, InvalidTransactionTimeoutError),
        ({"timeout_ms": 900_001}, InvalidTransactionTimeoutError),
        ({"name": ""}, InvalidRequestError),
        ({"name": None}, InvalidRequestError),
        ({"enable_2pc": True}, TransactionalIdAuthorizationFailedError),
        ({"keep_prepared_txn": True}, UnsupportedVersionError),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_no_trace(
    world: World, fields: dict[str, Any], error: type[ProtocolError]
) -> None:
    assert refusal(world.init(**fields)) is error
    assert world.log == []


def test_the_longest_timeout_is_read_anew_each_time(world: World) -> None:
    assert refusal(world.init(timeout_ms=900_001)) is InvalidTransactionTimeoutError
    world.settings = TxnSettings(max_timeout_ms=1_000_000)
    assert refusal(world.init(timeout_ms=900_001)) is None


def test_without_a_producer_id_at_hand_the_client_tries_again(world: World) -> None:
    world.no_ids = True
    assert refusal(world.init()) is CoordinatorLoadInProgressError
    assert world.log == []


def test_a_producer_that_recovers_gets_the_next_epoch_and_a_lost_answer_again(world: World) -> None:
    first = world.started()
    second = reported(world.init(first))
    assert second == (FRESH_ID, 1)
    assert reported(world.init(first)) == second
    world.crash()
    assert reported(world.init(first)) == second, "a restart must not make a zombie of it"


def test_a_zombie_that_recovers_is_fenced(world: World) -> None:
    zombie = world.started()
    world.started()
    assert refusal(world.init(zombie)) is ProducerFencedError
    assert refusal(world.init((999, 0))) is ProducerFencedError


def test_a_zombie_that_recovers_does_not_touch_an_open_transaction(world: World) -> None:
    zombie = world.started()
    producer = world.started()
    world.add(producer)
    assert refusal(world.init(zombie)) is ProducerFencedError
    assert world.transaction.state == TransactionState.Ongoing


def test_a_late_copy_of_a_recovery_does_not_touch_the_transaction_that_followed(world: World) -> None:
    before = world.started()
    producer = reported(world.init(before))
    world.add(producer)
    assert reported(world.init(before)) == producer
    assert world.transaction.state == TransactionState.Ongoing


def test_a_new_producer_aborts_what_is_open_and_is_told_to_come_back(world: World) -> None:
    zombie = world.started()
    world.add(zombie)
    assert refusal(world.init()) is ConcurrentTransactionsError
    action = world.sent()
    assert (action.producer_id, action.producer_epoch, action.commits) == (FRESH_ID, 1, False)
    assert action.partitions == [P0, P1]
    assert action.coordinator_epoch == 9
    assert refusal(world.init()) is ConcurrentTransactionsError
    assert world.actions == [], "the markers are on their way already"
    world.confirm(action)
    assert reported(world.init()) == (FRESH_ID, 2)
    assert refusal(world.add(zombie)) is ProducerFencedError
    assert refusal(world.end(zombie)) is ProducerFencedError


@pytest.mark.parametrize("version", [0, 2])
def test_a_producer_that_was_replaced_has_no_way_back(world: World, version: int) -> None:
    """It would begin anew each time, and whoever takes its place would never be let in."""
    zombie = world.started()
    world.add(zombie, version=version)
    assert refusal(world.init()) is ConcurrentTransactionsError
    action = world.sent()
    assert refusal(world.end(zombie, commits=False, version=version)) is ProducerFencedError
    world.confirm(action)
    assert refusal(world.end(zombie, commits=False, version=version)) is ProducerFencedError
    assert refusal(world.end(zombie, commits=True, version=version)) is ProducerFencedError
    assert reported(world.init()) == (FRESH_ID, 2)


def test_a_producer_that_recovers_from_an_open_transaction_goes_on(world: World) -> None:
    producer = world.started()
    world.add(producer, version=2)
    assert refusal(world.init(producer)) is ConcurrentTransactionsError
    world.confirm(world.sent())
    assert reported(world.init(producer)) == (FRESH_ID, 1)


def test_used_up_epochs_lead_to_a_new_producer_id(world: World) -> None:
    last = world.preset(producer_epoch=LAST_EPOCH)
    renewed = reported(world.init(last))
    assert renewed == (FRESH_ID, 0)
    assert reported(world.init(last)) == renewed, "the answer was lost"
    assert reported(world.init(last)) == renewed, "and once more"
    world.add(renewed)
    assert refusal(world.init(last)) is ProducerFencedError
    assert world.transaction.state == TransactionState.Ongoing


def test_fencing_takes_the_epoch_that_no_producer_gets(world: World) -> None:
    last = world.preset(producer_epoch=LAST_EPOCH)
    world.add(last)
    world.init()
    action = world.sent()
    assert action.producer_epoch == LAST_EPOCH + 1
    world.confirm(action)
    assert refusal(world.add((last[0], LAST_EPOCH + 1))) is ProducerFencedError, "nor may one take it"
    assert reported(world.init()) == (FRESH_ID, 0)
