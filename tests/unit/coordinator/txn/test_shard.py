"""The shard of transactions, operation by operation."""

from __future__ import annotations

import dataclasses

import pytest

from braidlog.coordinator.shard import ReplayedRecord
from braidlog.coordinator.txn.transaction_metadata import (
    TransactionState,
)
from braidlog.core.protocol_errors import (
    InvalidProducerIdMappingError,
    NotCoordinatorError,
    ProducerFencedError,
)
from support.responders import START_MS
from support.txn_shard import FRESH_ID, P0, P1, World, large, refusal, reported, size_of


@pytest.fixture
def world() -> World:
    return World()


# Markers


def test_what_comes_back_for_an_earlier_attempt_no_longer_counts(world: World) -> None:
    producer = world.started()
    world.add(producer)
    world.end(producer)
    old = world.sent()
    world.crash()
    new = world.sent()
    world.confirm(old)
    assert world.transaction.prepared
    world.confirm(new)
    world.add(producer)
    world.end(producer)
    world.confirm(new)
    assert world.transaction.state == TransactionState.PrepareCommit


def test_missing_markers_are_sent_again_and_only_those(world: World) -> None:
    producer = world.started()
    world.add(producer)
    world.end(producer)
    first = world.sent()
    world.confirm(first, P0)
    world.apply(world.shard.retry_markers(first, world.now))
    second = world.sent()
    assert (second.partitions, second.attempt) == ([P1], 1)
    world.confirm(first, P1)
    assert world.transaction.prepared, "the first attempt was given up"
    world.confirm(second)
    assert world.transaction.state == TransactionState.CompleteCommit
    world.apply(world.shard.retry_markers(second, world.now))
    assert world.actions == []


def test_complete_is_written_once_more_where_that_failed(world: World) -> None:
    producer = world.started()
    world.add(producer)
    world.end(producer)
    action = world.sent()
    lost = world.shard.markers_written(action, list(action.partitions), world.now)
    assert len(lost.records) == 1
    assert world.transaction.prepared
    world.advance(1.5)
    assert world.transaction.state == TransactionState.CompleteCommit
    assert world.shard.next_deadline() is not None


# Time


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(world: World) -> None:
    producer = world.started()
    world.advance(100)
    world.add(producer, P0)
    world.advance(30)
    world.add(producer, P1)
    world.advance(29.9)
    assert world.transaction.state == TransactionState.Ongoing
    world.advance(0.2)
    assert world.transaction.state == TransactionState.PrepareAbort
    action = world.sent()
    assert (action.producer_epoch, action.commits, action.partitions) == (1, False, [P0, P1])
    world.confirm(action)
    assert refusal(world.end(producer)) is ProducerFencedError
    assert refusal(world.init(producer)) is ProducerFencedError
    assert reported(world.init()) == (FRESH_ID, 2)


def test_the_timeout_counts_on_over_a_restart(world: World) -> None:
    producer = world.started()
    world.add(producer)
    world.advance(40)
    world.crash()
    world.advance(19)
    assert world.transaction.state == TransactionState.Ongoing
    world.advance(2)
    assert world.transaction.state == TransactionState.PrepareAbort


def test_an_abort_that_could_not_be_written_is_tried_again(world: World) -> None:
    world.add(world.started())
    world.seconds += 61
    assert len(world.shard.expire(world.now).records) == 1  # and lost
    assert world.transaction.state == TransactionState.Ongoing
    world.advance(1.1)
    assert world.transaction.state == TransactionState.PrepareAbort


def test_a_decided_transaction_does_not_time_out(world: World) -> None:
    producer = world.started()
    world.add(producer)
    world.end(producer)
    world.advance(1_000)
    assert world.transaction.state == TransactionState.PrepareCommit


def test_an_id_that_nobody_uses_is_forgotten(world: World) -> None:
    producer = world.started()
    world.advance(3_000)
    world.add(producer)
    world.end(producer)
    world.confirm(world.sent())
    world.advance(3_500)
    assert "tx" in world.shard.transactions
    world.advance(101)
    assert world.shard.transactions == {}
    assert world.rebuilt().transactions == {}
    assert world.shard.next_deadline() is None
    assert refusal(world.end(producer)) is InvalidProducerIdMappingError


@pytest.mark.parametrize("length", [10, 20_000])
def test_many_forgotten_ids_are_written_in_portions(world: World, length: int) -> None:
    for number in range(60_000 // length + 100):
        world.init(name=f"{number}".rjust(length))
    world.seconds += 3_601
    world.log.clear()
    sizes: list[int] = []
    while world.shard.transactions:
        effects = world.shard.expire(world.now)
        sizes.append(size_of(effects))
        world.apply(effects)
    assert len(sizes) > 1
    assert max(sizes) < 200_000
    assert len(world.log) == 60_000 // length + 100, "each once"


def test_transactions_that_time_out_together_are_aborted_in_portions(world: World) -> None:
    world.preset_open(*[large(1)] * 100)
    while any(transaction.state == TransactionState.Ongoing for transaction in world.shard.transactions.values()):
        effects = world.shard.expire(world.now)
        assert 0 < size_of(effects) < 200_000
        world.apply(effects)
    assert len(world.actions) == 100


def test_what_can_never_be_written_holds_up_nobody_else(world: World) -> None:
    """A record that the log finds too large is refused alone."""
    world.preset_open(frozenset([P0]), large(60), frozenset([P0]))
    for _ in range(10):
        effects = world.shard.expire(world.now)
        if size_of(effects) < 1_000_000:
            world.apply(effects)
    states = [transaction.state for transaction in world.shard.transactions.values()]
    assert states == [TransactionState.PrepareAbort, TransactionState.Ongoing, TransactionState.PrepareAbort]


# After a restart


def test_what_was_decided_is_completed_after_a_restart(world: World) -> None:
    producer = world.started()
    world.add(producer)
    world.end(producer)
    before = world.sent()
    world.crash()
    action = world.sent()
    assert (action.producer_id, action.producer_epoch, action.commits, action.partitions) == (
        before.producer_id,
        before.producer_epoch,
        before.commits,
        before.partitions,
    )
    world.confirm(action)
    assert world.transaction.state == TransactionState.CompleteCommit


def test_an_empty_abort_of_which_half_is_lost_is_completed_after_a_restart(world: World) -> None:
    world.preset(state=TransactionState.PrepareAbort, started_ms=START_MS, client_version=2)
    world.advance(0)
    assert world.transaction.state == TransactionState.CompleteAbort
    assert world.rebuilt().durable_state() == world.shard.durable_state()


# Questions


def test_nobody_is_left_waiting_when_the_shard_goes(world: World) -> None:
    world.add(world.started())
    assert world.shard.on_unloaded(NotCoordinatorError()).replies == []


# Where the cluster goes back to older records


def test_idle_ids_are_written_anew_in_the_version_that_others_read(world: World) -> None:
    producer = world.started()
    version = [1]
    world.shard._value_version = lambda: version[0]
    world.add(producer)
    world.end(producer)
    world.confirm(world.sent())
    before = world.transaction
    version[0] = 0
    world.apply(world.shard.write_all_again(world.now))
    world.advance(0)
    last = world.log[-1]
    assert isinstance(last, ReplayedRecord)
    assert last.value is not None
    assert last.value[:2] == b"\0\0"
    assert world.transaction == dataclasses.replace(before, client_version=0, last_epoch=-1, previous_id=-1)


def test_open_transactions_end_as_if_their_time_was_over(world: World) -> None:
    producer = world.started()
    world.add(producer)
    world.apply(world.shard.abort_all(world.now))
    world.advance(0)
    assert world.transaction.state == TransactionState.PrepareAbort
    world.confirm(world.sent())
    assert world.transaction.state == TransactionState.CompleteAbort
    # What is idle stays so.
    world.apply(world.shard.abort_all(world.now))
    world.advance(0)
    assert world.actions == []
