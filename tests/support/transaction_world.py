"""A transaction coordinator of one shard that commits at once, with partitions that take or refuse markers."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from braidlog.broker.coordinators.add_partitions_manager import AddPartitionsToTxnManager, PartitionErrors
from braidlog.broker.coordinators.marker_writer import MarkerDone
from braidlog.broker.coordinators.transaction_markers import TransactionMarkerManager
from braidlog.coordinator.effects import Effects, Moment, Responder, SendMarkers
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.txn.shard import TransactionCoordinatorShard
from braidlog.coordinator.txn.transaction_metadata import TransactionState, TxnSettings
from braidlog.core.protocol_errors import NotCoordinatorError, ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.end_txn import EndTxnRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from support.responders import RecordingResponder, ShardDriver

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
PRODUCER = 1000


class _Shards(ShardDriver[TransactionCoordinatorShard]):
    """A coordinator of one shard that commits at once."""

    def __init__(self) -> None:
        super().__init__(lambda: TransactionCoordinatorShard(TxnSettings, lambda: PRODUCER, 5))
        self.perform: Callable[[SendMarkers], None] | None = None
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


class _Partitions:
    """Takes markers, or refuses them as the test says."""

    def __init__(self) -> None:
        self.written: list[tuple[TopicPartition, int, int, bool, int]] = []
        self.refusing: dict[TopicPartition, ProtocolError] = {}

    def write(self, markers: SendMarkers, done: MarkerDone) -> None:
        for partition in markers.partitions:
            error = self.refusing.get(partition)
            if error is None:
                ended = (markers.producer_id, markers.producer_epoch, markers.commits, markers.coordinator_epoch)
                self.written.append((partition, *ended))
            done(partition, error)


class TransactionWorld:
    def __init__(self) -> None:
        self.shards = _Shards()
        self.partitions = _Partitions()
        self.timers: list[tuple[float, Callable[[], None]]] = []
        # What the store does not have.
        self.gone: set[TopicPartition] = set()
        self.marker_manager = TransactionMarkerManager(
            cast("CoordinatorRuntime[TransactionCoordinatorShard]", self.shards),
            lambda delay, work: self.timers.append((delay, work)),
            lambda partition, done: done(partition in self.gone),
        )
        self.add_partitions_manager = AddPartitionsToTxnManager(
            cast("CoordinatorRuntime[TransactionCoordinatorShard]", self.shards),
            lambda delay, work: self.timers.append((delay, work)),
        )
        self.shards.perform = lambda action: self.partitions.write(action, self.marker_manager.track(action))
        request = InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000)
        responder = RecordingResponder()
        self.shards.submit("tx", responder, lambda shard, now: shard.init_producer_id(request, responder, now))

    def ask(self, *partitions: TopicPartition, add: bool, epoch: int = 0, name: str = "tx") -> list[PartitionErrors]:
        received: list[PartitionErrors] = []
        self.add_partitions_manager.add_or_verify(name, PRODUCER, epoch, list(partitions), add, received.append)
        return received

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


def kinds(answers: PartitionErrors) -> dict[TopicPartition, type[ProtocolError] | None]:
    return {partition: None if error is None else type(error) for partition, error in answers.items()}
