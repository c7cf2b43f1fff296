from __future__ import annotations

import pytest

from braidlog.coordinator.txn.transaction_metadata import (
    LAST_EPOCH,
    TransactionState,
)
from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from support.responders import START_MS
from support.txn_shard import FRESH_ID, P0, P1, World, refusal, reported


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_ends_in_two_steps(world: World, commits: bool) -> None:
    producer = world.started()
    world.add(producer)
    assert reported(world.end(producer, commits)) == (-1, -1)
    assert world.transaction.state == (TransactionState.PrepareCommit if commits else TransactionState.PrepareAbort)
    assert refusal(world.end(producer, commits)) is ConcurrentTransactionsError
    assert refusal(world.end(producer, not commits)) is ConcurrentTransactionsError
    action = world.sent()
    assert (action.producer_epoch, action.commits) == (0, commits)
    world.confirm(action, P1)
    assert world.transaction.prepared
    world.confirm(action, P0)
    assert world.transaction.state == (TransactionState.CompleteCommit if commits else TransactionState.CompleteAbort)
    assert world.transaction.partitions == frozenset()
    assert refusal(world.end(producer, commits)) is None
    assert refusal(world.end(producer, not commits)) is InvalidTxnStateError


def test_who_may_not_end_a_transaction(world: World) -> None:
    assert refusal(world.end((1, 0))) is InvalidProducerIdMappingError
    producer = world.started()
    assert refusal(world.end(producer)) is InvalidTxnStateError
    assert refusal(world.end(producer, commits=False)) is InvalidTxnStateError
    assert refusal(world.end((999, 0))) is InvalidProducerIdMappingError
    assert refusal(world.end((FRESH_ID, 1))) is ProducerFencedError


def test_each_end_moves_the_epoch_and_a_retry_hears_the_same(world: World) -> None:
    producer = world.started()
    world.add(producer, version=2)
    following = reported(world.end(producer, version=2))
    assert following == (FRESH_ID, 1)
    assert refusal(world.end(producer, version=2)) is ConcurrentTransactionsError
    assert refusal(world.end(producer, commits=False, version=2)) is ConcurrentTransactionsError
    action = world.sent()
    assert action.producer_epoch == 1, "the marker fences what is late of the epoch before"
    assert refusal(world.add(following, version=2)) is ConcurrentTransactionsError
    world.confirm(action)
    assert reported(world.end(producer, version=2)) == following
    assert refusal(world.end(producer, commits=False, version=2)) is InvalidTxnStateError
    world.add(following, version=2)
    assert refusal(world.end(producer, version=2)) is ProducerFencedError
    assert refusal(world.add(producer, version=2)) is ProducerFencedError
    assert world.transaction.state == TransactionState.Ongoing


@pytest.mark.parametrize(
    "state", [TransactionState.Empty, TransactionState.CompleteCommit, TransactionState.CompleteAbort]
)
def test_an_abort_of_nothing_ends_at_once(world: World, state: TransactionState) -> None:
    producer = world.preset(
        state=state, producer_epoch=4, started_ms=-1 if state == TransactionState.Empty else START_MS
    )
    assert (
        refusal(world.end((50, 3), commits=state == TransactionState.CompleteCommit, version=2)) is ProducerFencedError
    )
    assert refusal(world.end(producer, commits=True, version=2)) is InvalidTxnStateError
    assert reported(world.end(producer, commits=False, version=2)) == (50, 5)
    assert world.transaction.state == TransactionState.CompleteAbort
    assert world.actions == []
    assert reported(world.end(producer, commits=False, version=2)) == (50, 5)


def test_a_retry_in_empty_is_fenced(world: World) -> None:
    world.preset(producer_epoch=4)
    assert refusal(world.end((50, 3), commits=False, version=2)) is ProducerFencedError
    assert refusal(world.end((50, 3), version=2)) is ProducerFencedError


def test_an_end_with_the_last_epoch_hands_out_a_new_producer_id(world: World) -> None:
    last = world.preset(producer_epoch=LAST_EPOCH)
    world.add(last, version=2)
    renewed = reported(world.end(last, version=2))
    assert renewed == (FRESH_ID, 0)
    action = world.sent()
    assert (action.producer_id, action.producer_epoch) == (50, LAST_EPOCH + 1)
    assert refusal(world.add(renewed, version=2)) is ConcurrentTransactionsError
    assert refusal(world.end(renewed, version=2)) is ConcurrentTransactionsError
    assert refusal(world.init(renewed)) is ConcurrentTransactionsError
    world.crash()
    world.confirm(world.sent())
    assert reported(world.end(last, version=2)) == renewed
    assert refusal(world.end((50, 3), version=2)) is InvalidProducerIdMappingError
    assert refusal(world.add(renewed, version=2)) is None
    assert refusal(world.end(last, version=2)) is InvalidProducerIdMappingError


def test_without_a_producer_id_at_hand_nothing_is_decided(world: World) -> None:
    last = world.preset(producer_epoch=LAST_EPOCH)
    world.add(last, version=2)
    world.no_ids = True
    assert refusal(world.end(last, version=2)) is CoordinatorLoadInProgressError
    assert world.transaction.state == TransactionState.Ongoing


def test_a_producer_that_was_timed_out_learns_of_the_abort_and_goes_on(world: World) -> None:
    producer = world.started()
    world.add(producer, version=2)
    world.advance(61)
    world.confirm(world.sent())
    assert refusal(world.end(producer, commits=True, version=2)) is InvalidTxnStateError
    assert reported(world.end(producer, commits=False, version=2)) == (FRESH_ID, 1)


def test_the_fencing_epoch_is_not_told_to_a_producer_that_was_timed_out(world: World) -> None:
    last = world.preset(producer_epoch=LAST_EPOCH)
    world.add(last, version=2)
    world.advance(61)
    world.confirm(world.sent())
    assert refusal(world.end(last, commits=False, version=2)) is ProducerFencedError
    assert reported(world.init(last)) == (FRESH_ID, 0)
