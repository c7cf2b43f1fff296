"""Between the transaction coordinator and the partitions: who may write, and the markers that end a transaction."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Protocol

from braidlog.cluster.producer_id_manager import ProducerIdManager
from braidlog.coordinator.effects import Action
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.txn.transaction_metadata import TV_2, SendMarkers
from braidlog.core.protocol_errors import (
    BY_CODE,
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    InvalidProducerEpochError,
    ProducerFencedError,
    ProtocolError,
    TransactionCoordinatorFencedError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.tasks import Tasks
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from braidlog.wire.message import Message

if TYPE_CHECKING:
    # Imported with the first shard: a broker without transactions starts without them.
    from braidlog.coordinator.txn.shard import TransactionCoordinatorShard

log = logging.getLogger("braidlog.transactions")

PartitionErrors = dict[TopicPartition, ProtocolError | None]
OnVerified = Callable[[PartitionErrors], None]
CallLater = Callable[[float, Callable[[], None]], Any]

# For how long somebody who is too early is kept: about 100 ms, as Kafka 4 does for a produce.
_BETWEEN_QUESTIONS_S: Final = 0.005
_MOST_QUESTIONS: Final = 20
# Between tries to write markers, in seconds.
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0


class MarkerTarget(Protocol):
    """How markers get into partitions (`marker_writer`); `done` is called once a partition, with None if committed."""

    def write(
        self,
        producer_id: int,
        producer_epoch: int,
        commits: bool,
        coordinator_epoch: int,
        partitions: list[TopicPartition],
        done: Callable[[TopicPartition, ProtocolError | None], None],
    ) -> None: ...


class PrefetchedProducerIds:
    """Producer ids for operations that cannot wait: those at hand, while more are claimed behind the scenes."""

    def __init__(self, producer_ids: ProducerIdManager, tasks: Tasks) -> None:
        self._producer_ids = producer_ids
        self._tasks = tasks
        self._claiming = False

    def take(self) -> int:
        try:
            return self._producer_ids.take()
        except CoordinatorLoadInProgressError:
            if not self._claiming:
                self._claiming = True
                self._tasks.spawn("claiming producer ids", self._claim())
            raise

    async def _claim(self) -> None:
        try:
            await self._producer_ids.reserve()
        finally:
            self._claiming = False


class _AddOrVerifyRequest:
    """A question to the coordinator, and the responder that turns its answer into one per partition.

    A producer may begin its next transaction while partitions still learn of the end of the last one. Where writing
    adds partitions nobody has told it to wait: it waits here for a moment, which is shorter than a client's own pause.
    """

    __slots__ = ("_call_later", "_done", "_partitions", "_transactions", "_tries", "_wanted")

    def __init__(
        self,
        transactions: CoordinatorRuntime[TransactionCoordinatorShard],
        call_later: CallLater,
        wanted: AddPartitionsToTxnTransaction,
        partitions: list[TopicPartition],
        done: OnVerified,
    ) -> None:
        self._transactions = transactions
        self._call_later = call_later
        self._wanted = wanted
        self._partitions = partitions
        self._done = done
        self._tries = 0

    def ask(self) -> None:
        self._tries += 1
        wanted = self._wanted
        if wanted.verify_only:
            self._transactions.submit(
                wanted.transactional_id, self, lambda shard, now: shard.verify_partitions(wanted, self, now)
            )
        else:
            version = TV_2
            self._transactions.submit(
                wanted.transactional_id, self, lambda shard, now: shard.add_partitions(wanted, version, self, now)
            )

    def answer(self, response: Message) -> None:
        assert isinstance(response, AddPartitionsToTxnResult)
        answers: PartitionErrors = {}
        for topic in response.topic_results:
            for partition in topic.results_by_partition:
                error = error_from(partition.partition_error_code)
                answers[TopicPartition(topic.name, partition.partition_index)] = error
        self._done(answers)

    def fail(self, error: ProtocolError) -> None:
        too_early = isinstance(error, ConcurrentTransactionsError) and not self._wanted.verify_only
        if too_early and self._tries < _MOST_QUESTIONS:
            self._call_later(_BETWEEN_QUESTIONS_S, self.ask)
            return
        # The coordinator speaks of a fenced producer, partitions of its epoch (KIP-588).
        if isinstance(error, ProducerFencedError):
            error = InvalidProducerEpochError(error.message)
        self._done(dict.fromkeys(self._partitions, error))


class _NoResponder:
    """Nobody waits for the answer; a coordinator that lost its partition leaves the rest to the next one."""

    def answer(self, response: Message) -> None:
        pass

    def fail(self, error: ProtocolError) -> None:
        log.debug("left to the next coordinator: %s", error)


class _MarkerAttempt:
    """One attempt at the markers of a transaction."""

    def __init__(self, marker_manager: TransactionMarkerManager, action: SendMarkers) -> None:
        self._desk = marker_manager
        self._action = action
        self._left = len(action.partitions)
        self._written: list[TopicPartition] = []
        self._failed = False

    def done(self, partition: TopicPartition, error: ProtocolError | None) -> None:
        self._left -= 1
        if error is None or isinstance(error, UnknownTopicOrPartitionError):
            # A partition that is gone needs no marker.
            self._written.append(partition)
        elif isinstance(error, TransactionCoordinatorFencedError):
            log.error("%s: %s refused the marker, a newer coordinator has written there", self._action, partition)
        else:
            # Also a partition that has seen a newer epoch is asked again: the producer may come to be forgotten there,
            # or the topic be deleted, and without another try the transactional id would be of no use ever after.
            self._failed = True
            if self._action.attempt == 0:
                log.warning("%s: %s could not be marked yet: %s", self._action, partition, error)
        if self._left == 0:
            self._desk.attempt_finished(self._action, self._written, self._failed)


class TransactionMarkerManager:
    def __init__(
        self,
        transactions: CoordinatorRuntime[TransactionCoordinatorShard],
        markers: MarkerTarget,
        call_later: CallLater,
    ) -> None:
        self._transactions = transactions
        self._markers = markers
        self._call_later = call_later

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        add: bool,
        done: OnVerified,
    ) -> None:
        """Whether the producer may write to the partitions now (KIP-890); with `add` they join its transaction.

        `done` is called exactly once, at once where nothing needs to be written; what it appends at once comes before
        the markers of a later end, since the coordinator answers in the order in which it decides. None means yes; a
        partition outside of the transaction is TRANSACTION_ABORTABLE, which older clients receive as
        INVALID_TXN_STATE; a producer that was fenced is INVALID_PRODUCER_EPOCH. What else there may be concerns all
        partitions alike.
        """
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for partition in partitions:
            topic = topics.get(partition.topic)
            if topic is None:
                topic = topics[partition.topic] = AddPartitionsToTxnTopic(name=partition.topic)
            topic.partitions.append(partition.partition)
        wanted = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=not add,
            topics=list(topics.values()),
        )
        _AddOrVerifyRequest(self._transactions, self._call_later, wanted, partitions, done).ask()

    # Markers

    def perform(self, action: Action) -> None:
        assert isinstance(action, SendMarkers)
        attempt = _MarkerAttempt(self, action)
        self._markers.write(
            action.producer_id,
            action.producer_epoch,
            action.commits,
            action.coordinator_epoch,
            action.partitions,
            attempt.done,
        )

    def attempt_finished(self, action: SendMarkers, written: list[TopicPartition], failed: bool) -> None:
        """Every partition has said something: tell the shard, and try those again that might still take it."""
        self._transactions.submit(
            action.transactional_id, _NoResponder(), lambda shard, now: shard.markers_written(action, written, now)
        )
        if failed:
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(action.attempt, 6))
            self._call_later(pause, lambda: self._retry(action))

    def _retry(self, action: SendMarkers) -> None:
        self._transactions.submit(
            action.transactional_id, _NoResponder(), lambda shard, now: shard.retry_markers(action, now)
        )


def error_code_for_version(error: ProtocolError, version: int, fenced_from: int) -> int:
    """The code for a client of this version; before `fenced_from` there was no PRODUCER_FENCED (KIP-588)."""
    if version < fenced_from and error.code == ProducerFencedError.code:
        return InvalidProducerEpochError.code
    return error.code


def error_from(code: int) -> ProtocolError | None:
    return None if code == 0 else BY_CODE.get(code, UnknownServerError)()
