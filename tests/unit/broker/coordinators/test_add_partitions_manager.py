"""Verifying and adding partitions, with a coordinator shard of its own."""

from __future__ import annotations

import pytest

from braidlog.coordinator.txn.transaction_metadata import TransactionState
from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    TransactionAbortableError,
)
from support.transaction_world import P0, P1, TransactionWorld, kinds


@pytest.fixture
def world() -> TransactionWorld:
    return TransactionWorld()


def test_a_partition_may_be_written_once_it_has_joined(world: TransactionWorld) -> None:
    assert kinds(world.check(P0, add=False)) == {P0: TransactionAbortableError}
    assert kinds(world.check(P0, add=True)) == {P0: None}
    assert kinds(world.check(P0, P1, add=False)) == {P0: None, P1: TransactionAbortableError}


@pytest.mark.parametrize("add", [True, False])
def test_what_is_wrong_with_the_producer_concerns_all_partitions(world: TransactionWorld, add: bool) -> None:
    assert kinds(world.check(P0, P1, add=add, epoch=4)) == dict.fromkeys([P0, P1], InvalidProducerEpochError)
    assert kinds(world.check(P0, add=add, name="other")) == {P0: InvalidProducerIdMappingError}
    world.shards.gone = True
    assert kinds(world.check(P0, add=add)) == {P0: NotCoordinatorError}


@pytest.mark.parametrize("tries", [1, 15])
def test_a_producer_that_is_too_early_waits_for_the_last_transaction(world: TransactionWorld, tries: int) -> None:
    world.check(P0, add=True)
    world.partitions.refusing[P0] = NotEnoughReplicasError()
    world.end()
    ((_, write_markers),) = world.timers
    world.timers = []
    received = world.ask(P0, add=True, epoch=1)
    for _ in range(tries):
        assert received == []
        world.pass_time()
    world.partitions.refusing.clear()
    (asks_again,) = world.timers
    write_markers()
    world.timers = [asks_again]
    assert world.pass_time() < 0.01
    assert [kinds(answers) for answers in received] == [{P0: None}]
    assert world.state == TransactionState.Ongoing


def test_a_producer_that_is_too_early_for_long_is_refused(world: TransactionWorld) -> None:
    world.check(P0, add=True)
    world.partitions.refusing[P0] = NotEnoughReplicasError()
    world.end()
    world.timers = []
    received = world.ask(P0, add=True, epoch=1)
    waited = 0.0
    while world.timers:
        waited += world.pass_time()
    assert [kinds(answers) for answers in received] == [{P0: ConcurrentTransactionsError}]
    assert 0.05 < waited < 0.2


def test_a_producer_that_adds_partitions_first_is_never_too_early(world: TransactionWorld) -> None:
    world.check(P0, add=True)
    world.partitions.refusing[P0] = NotEnoughReplicasError()
    world.end()
    assert kinds(world.check(P0, add=False, epoch=1)) == {P0: ConcurrentTransactionsError}
