"""Verifies that a producer may write to partitions in its transaction, or adds them to it (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from braidlog.broker.coordinators.early_requests import CallLater, EarlyRequestBackoff
from braidlog.coordinator.effects import Responder
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.txn.transaction_metadata import TV_2
from braidlog.core.protocol_errors import (
    BY_CODE,
    InvalidProducerEpochError,
    ProducerFencedError,
    ProtocolError,
    UnknownServerError,
)
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

PartitionErrors = dict[TopicPartition, ProtocolError | None]
OnVerified = Callable[[PartitionErrors], None]
# Asks the coordinator of another broker, which answers with an AddPartitionsToTxnResult; false where it is this one's.
AskElsewhere = Callable[[AddPartitionsToTxnTransaction, Responder], bool]


class AddPartitionsToTxnManager:
    def __init__(self, transactions: CoordinatorRuntime[TransactionCoordinatorShard], call_later: CallLater) -> None:
        self._transactions = transactions
        self._call_later = call_later
        # Set in a cluster.
        self.elsewhere: AskElsewhere | None = None

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

        `done` is called exactly once, at once where the coordinator is here and nothing needs to be written. The
        transaction may have ended again when an answer comes from another broker: who appends holds a
        `VerificationGuard` of the log meanwhile. None means yes; a partition outside of the transaction is
        TRANSACTION_ABORTABLE, which older clients receive as INVALID_TXN_STATE; a producer that was fenced is
        INVALID_PRODUCER_EPOCH. Any other error is that of all partitions.
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
        backoff = EarlyRequestBackoff(self._call_later)
        _AddOrVerifyRequest(self._transactions, self.elsewhere, backoff, wanted, partitions, done).send()


class _AddOrVerifyRequest:
    """One request to the coordinator, and the responder that turns its reply into one error per partition.

    Where writing adds partitions it may be too early: the coordinator, also that of another broker, is asked again.
    """

    __slots__ = ("_backoff", "_done", "_elsewhere", "_partitions", "_transactions", "_wanted")

    def __init__(
        self,
        transactions: CoordinatorRuntime[TransactionCoordinatorShard],
        elsewhere: AskElsewhere | None,
        backoff: EarlyRequestBackoff,
        wanted: AddPartitionsToTxnTransaction,
        partitions: list[TopicPartition],
        done: OnVerified,
    ) -> None:
        self._transactions = transactions
        self._elsewhere = elsewhere
        self._backoff = backoff
        self._wanted = wanted
        self._partitions = partitions
        self._done = done

    def send(self) -> None:
        wanted = self._wanted
        # Each time anew: the coordinator may have moved.
        if self._elsewhere is not None and self._elsewhere(wanted, self):
            return
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
                if error is not None and self._sends_again(error):
                    return
                answers[TopicPartition(topic.name, partition.partition_index)] = _as_partitions_say(error)
        self._done(answers)

    def fail(self, error: ProtocolError) -> None:
        if not self._sends_again(error):
            self._done(dict.fromkeys(self._partitions, _as_partitions_say(error)))

    def _sends_again(self, error: ProtocolError) -> bool:
        """A producer that is too early is so for all partitions."""
        return not self._wanted.verify_only and self._backoff.tries_again(error, self.send)


def error_from(code: int) -> ProtocolError | None:
    return None if code == 0 else BY_CODE.get(code, UnknownServerError)()


def _as_partitions_say(error: ProtocolError | None) -> ProtocolError | None:
    """Coordinators answer PRODUCER_FENCED, partitions INVALID_PRODUCER_EPOCH (KIP-588)."""
    return InvalidProducerEpochError(error.message) if isinstance(error, ProducerFencedError) else error
