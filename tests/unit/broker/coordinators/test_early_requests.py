"""Requests that begin a transaction, with a coordinator shard of its own."""

from __future__ import annotations

from typing import cast

import pytest

from braidlog.broker.coordinators.early_requests import EarlyRequestBackoff, EarlyRequests
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.txn.shard import TransactionCoordinatorShard
from braidlog.coordinator.txn.transaction_metadata import TransactionState
from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProducerFencedError,
)
from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from support.responders import RecordingResponder
from support.transaction_world import P0, PRODUCER, TransactionWorld


class World(TransactionWorld):
    """The markers of its last transaction are not written yet."""

    def __init__(self) -> None:
        super().__init__()
        self.early_requests = EarlyRequests(
            cast("CoordinatorRuntime[TransactionCoordinatorShard]", self.shards),
            lambda delay, work: self.timers.append((delay, work)),
        )
        self.check(P0, add=True)
        self.partitions.refusing[P0] = NotEnoughReplicasError()
        self.end()
        ((_, self._write_markers),) = self.timers
        self.timers = []

    def add_offsets(self, epoch: int = 1) -> RecordingResponder:
        request = AddOffsetsToTxnRequest(
            transactional_id="tx", producer_id=PRODUCER, producer_epoch=epoch, group_id="group"
        )
        responder = RecordingResponder()
        self.early_requests.submit(
            "tx", responder, lambda shard, answer, now: shard.add_offsets(request, 7, answer, now)
        )
        return responder

    def write_markers(self) -> None:
        self.partitions.refusing.clear()
        waiting, self.timers = self.timers, []
        self._write_markers()
        self.timers = waiting


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("tries", [0, 1, 40, 200])
def test_it_waits_for_the_markers_of_the_last_transaction(world: World, tries: int) -> None:
    responder = world.add_offsets()
    for _ in range(tries):
        world.pass_time()
    assert not responder.answered
    world.write_markers()
    assert world.pass_time() < 0.05
    assert responder.error_code == 0
    assert world.state == TransactionState.Ongoing
    assert world.timers == []


def test_it_is_refused_where_that_takes_long(world: World) -> None:
    responder = world.add_offsets()
    waited = 0.0
    while world.timers:
        waited += world.pass_time()
    assert type(responder.error) is ConcurrentTransactionsError
    # Clients give a request 30 s or more.
    assert 4 < waited < 6


def test_a_produce_is_refused_sooner() -> None:
    pauses: list[float] = []
    backoff = EarlyRequestBackoff(lambda pause_s, send: pauses.append(pause_s))
    while backoff.tries_again(ConcurrentTransactionsError(), lambda: None):
        pass
    # The shortest backoff of a client's is 20 ms, and a producer is not to notice the wait.
    assert 0.05 < sum(pauses) < 0.2


def test_what_cannot_get_better_is_refused_at_once(world: World) -> None:
    world.write_markers()
    assert type(world.add_offsets(epoch=0).error) is ProducerFencedError
    assert world.timers == []


def test_a_coordinator_that_moves_meanwhile_refuses(world: World) -> None:
    responder = world.add_offsets()
    world.shards.gone = True
    world.pass_time()
    assert type(responder.error) is NotCoordinatorError
    assert world.timers == []
