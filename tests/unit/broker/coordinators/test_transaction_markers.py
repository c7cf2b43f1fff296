"""The manager of transaction markers, with a coordinator shard of its own and partitions that obey."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from braidlog.broker.coordinators.transaction_markers import (
    PartitionErrors,
    PrefetchedProducerIds,
    TransactionMarkerManager,
    error_code_for_version,
)
from braidlog.cluster.producer_id_manager import ProducerIdManager
from braidlog.coordinator.effects import Effects, Moment, Responder
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.txn.shard import TransactionCoordinatorShard
from braidlog.coordinator.txn.transaction_metadata import TransactionState, TxnSettings
from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProducerFencedError,
    ProtocolError,
    TransactionAbortableError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.end_txn import EndTxnRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from support.responders import RecordingResponder, ShardDriver

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER = 1000


class Shards(ShardDriver[TransactionCoordinatorShard]):
    """A coordinator of one shard that commits at once."""

    def __init__(self) -> None:
        super().__init__(lambda: TransactionCoordinatorShard(TxnSettings, lambda: PRODUCER, 5))
        self.perform: Callable[[Any], None] | None = None
        self.gone = False

    def submit(
        self, name: str, responder: Responder, operation: Callable[[TransactionCoordinatorShard, Moment], Effects]
    ) -> None:  # type: ignore[override]
        if self.gone:
            responder.fail(NotCoordinatorError())
            return
        try:
            self.apply(operation(self.shard, self.now))
        except ProtocolError as error:
            responder.fail(error)
        actions, self.actions = self.actions, []
        for action in actions:
            assert self.perform is not None
            self.perform(action)


class Partitions:
    """Takes markers, or refuses them as told."""

    def __init__(self) -> None:
        self.written: list[tuple[TopicPartition, int, int, bool, int]] = []
        self.refusing: dict[TopicPartition, ProtocolError] = {}

    def write(
        self,
        producer_id: int,
        producer_epoch: int,
        commits: bool,
        coordinator_epoch: int,
        partitions: list[TopicPartition],
        done: Callable[[TopicPartition, ProtocolError | None], None],
    ) -> None:
        for partition in partitions:
            error = self.refusing.get(partition)
            if error is None:
                self.written.append((partition, producer_id, producer_epoch, commits, coordinator_epoch))
            done(partition, error)


class World:
    def __init__(self) -> None:
        self.shards = Shards()
        self.partitions = Partitions()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.marker_manager = TransactionMarkerManager(
            cast("CoordinatorRuntime[TransactionCoordinatorShard]", self.shards),
            self.partitions,
            lambda delay, work: self.timers.append((delay, work)),
        )
        self.shards.perform = self.marker_manager.perform
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        responder = RecordingResponder()
        self.shards.submit("tx", responder, lambda shard, now: shard.init_producer_id(request, responder, now))

    def ask(self, *partitions: TopicPartition, add: bool, epoch: int = 0, name: str = "tx") -> list[PartitionErrors]:
        heard: list[PartitionErrors] = []
        self.marker_manager.add_or_verify(name, PRODUCER, epoch, list(partitions), add, heard.append)
        return heard

    def check(self, *partitions: TopicPartition, add: bool, epoch: int = 0, name: str = "tx") -> PartitionErrors:
        (answers,) = self.ask(*partitions, add=add, epoch=epoch, name=name)
        return answers

    def end(self) -> None:
        request = EndTxnRequest(transactional_id="tx", producer_id=PRODUCER, producer_epoch=0, committed=True)
        responder = RecordingResponder()
        self.shards.submit("tx", responder, lambda shard, now: shard.end_txn(request, True, responder, now))
        assert responder.error_code == 0

    @property
    def state(self) -> TransactionState:
        return self.shards.shard.transactions["tx"].state

    def pass_time(self) -> float:
        ((delay, work),) = self.timers
        self.timers = []
        work()
        return delay


@pytest.fixture
def world() -> World:
    return World()


def kinds(answers: PartitionErrors) -> dict[TopicPartition, type[ProtocolError] | None]:
    return {partition: None if error is None else type(error) for partition, error in answers.items()}


def test_a_partition_may_be_written_once_it_has_joined(world: World) -> None:
    assert kinds(world.check(P0, add=False)) == {P0: TransactionAbortableError}
    assert kinds(world.check(P0, add=True)) == {P0: None}
    assert kinds(world.check(P0, P1, add=False)) == {P0: None, P1: TransactionAbortableError}


@pytest.mark.parametrize("add", [True, False])
def test_what_is_wrong_with_the_producer_concerns_all_partitions(world: World, add: bool) -> None:
    assert kinds(world.check(P0, P1, add=add, epoch=4)) == dict.fromkeys([P0, P1], InvalidProducerEpochError)
    assert kinds(world.check(P0, add=add, name="other")) == {P0: InvalidProducerIdMappingError}
    world.shards.gone = True
    assert kinds(world.check(P0, add=add)) == {P0: NotCoordinatorError}


@pytest.mark.parametrize("tries", [1, 15])
def test_who_is_too_early_waits_for_the_end_of_the_last_transaction(world: World, tries: int) -> None:
    world.check(P0, add=True)
    world.partitions.refusing[P0] = NotEnoughReplicasError()
    world.end()
    ((_, write_markers),) = world.timers
    world.timers = []
    heard = world.ask(P0, add=True, epoch=1)
    for _ in range(tries):
        assert heard == []
        world.pass_time()
    world.partitions.refusing.clear()
    (asks_again,) = world.timers
    write_markers()
    world.timers = [asks_again]
    assert world.pass_time() < 0.01
    assert [kinds(answers) for answers in heard] == [{P0: None}]
    assert world.state == TransactionState.Ongoing


def test_who_is_too_early_for_long_is_told_so(world: World) -> None:
    world.check(P0, add=True)
    world.partitions.refusing[P0] = NotEnoughReplicasError()
    world.end()
    world.timers = []
    heard = world.ask(P0, add=True, epoch=1)
    waited = 0.0
    while world.timers:
        waited += world.pass_time()
    assert [kinds(answers) for answers in heard] == [{P0: ConcurrentTransactionsError}]
    assert 0.05 < waited < 0.2


def test_who_has_to_add_partitions_first_is_never_too_early(world: World) -> None:
    world.check(P0, add=True)
    world.partitions.refusing[P0] = NotEnoughReplicasError()
    world.end()
    assert kinds(world.check(P0, add=False, epoch=1)) == {P0: ConcurrentTransactionsError}


def test_an_end_writes_every_marker_and_completes(world: World) -> None:
    world.check(P0, P1, add=True)
    world.end()
    assert world.partitions.written == [(P0, PRODUCER, 1, True, 5), (P1, PRODUCER, 1, True, 5)]
    assert world.state == TransactionState.CompleteCommit
    assert world.timers == []


def test_what_failed_is_tried_again_with_longer_and_longer_pauses(world: World) -> None:
    world.check(P0, P1, add=True)
    world.partitions.refusing[P1] = NotEnoughReplicasError()
    world.end()
    pauses = [world.pass_time() for _ in range(9)]
    assert pauses == sorted(pauses)
    assert (pauses[0], pauses[-1]) == (0.1, 5.0)
    assert world.state == TransactionState.PrepareCommit
    world.partitions.refusing.clear()
    world.pass_time()
    assert world.state == TransactionState.CompleteCommit
    assert [entry[0] for entry in world.partitions.written] == [P0, P1], "each once"


def test_a_partition_that_is_gone_needs_no_marker(world: World) -> None:
    world.check(P0, P1, add=True)
    world.partitions.refusing[P1] = UnknownTopicOrPartitionError()
    world.end()
    assert world.state == TransactionState.CompleteCommit


def test_a_partition_that_has_seen_a_newer_epoch_is_asked_until_it_is_gone(world: World) -> None:
    world.check(P0, P1, add=True)
    world.partitions.refusing[P1] = InvalidProducerEpochError()
    world.end()
    for _ in range(20):
        world.pass_time()
    assert world.state == TransactionState.PrepareCommit
    world.partitions.refusing[P1] = UnknownTopicOrPartitionError()
    world.pass_time()
    assert world.state == TransactionState.CompleteCommit
    assert world.timers == []


def test_a_newer_coordinator_is_left_to_it(world: World) -> None:
    world.check(P0, P1, add=True)
    world.partitions.refusing[P1] = TransactionCoordinatorFencedError()
    world.end()
    assert world.state == TransactionState.PrepareCommit
    assert world.timers == []


def test_a_coordinator_that_lost_its_partition_stops_trying(world: World) -> None:
    world.check(P0, add=True)
    world.partitions.refusing[P0] = NotEnoughReplicasError()
    world.end()
    world.shards.gone = True
    world.pass_time()
    assert world.timers == []


@pytest.mark.parametrize(
    ("error", "version", "reported"),
    [
        (ProducerFencedError(), 2, 90),
        (ProducerFencedError(), 1, 47),
        (InvalidProducerIdMappingError(), 3, 49),
    ],
)
def test_clients_are_told_what_they_understand(error: ProtocolError, version: int, reported: int) -> None:
    assert error_code_for_version(error, version, 2) == reported


class SlowIds:
    """Producer ids that are claimed when the test lets them."""

    def __init__(self) -> None:
        self.at_hand: list[int] = []
        self.claims = 0
        self.may_claim = asyncio.Event()

    def take(self) -> int:
        if not self.at_hand:
            raise CoordinatorLoadInProgressError
        return self.at_hand.pop()

    async def reserve(self) -> None:
        self.claims += 1
        await self.may_claim.wait()
        self.at_hand = [7]


def test_ids_are_claimed_behind_the_scenes_once() -> None:
    async def scenario() -> None:
        ids, tasks = SlowIds(), Tasks("test")
        spare = PrefetchedProducerIds(cast("ProducerIdManager", ids), tasks)
        for _ in range(3):
            with pytest.raises(CoordinatorLoadInProgressError):
                spare.take()
        ids.may_claim.set()
        await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
        assert ids.claims == 1
        assert spare.take() == 7
        await tasks.close()

    asyncio.run(scenario())
