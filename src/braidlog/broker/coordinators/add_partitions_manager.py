"""Verifies that a producer may write to partitions in its transaction, or adds them to it (KIP-890)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.txn.transaction_metadata import TV_2
from braidlog.core.protocol_errors import (
    BY_CODE,
    ConcurrentTransactionsError,
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
CallLater = Callable[[float, Callable[[], None]], Any]

# How long a request that is too early is kept: about 100 ms in all, as Kafka 4 does for a produce.
_RETRY_BACKOFF_S: Final = 0.005
_MAX_TRIES: Final = 20


class AddPartitionsToTxnManager:
    def __init__(self, transactions: CoordinatorRuntime[TransactionCoordinatorShard], call_later: CallLater) -> None:
        self._transactions = transactions
        self._call_later = call_later
        # Asks the coordinator of another broker; false where it is this one's. Set in a cluster.
        self.elsewhere: Callable[[AddPartitionsToTxnTransaction, list[TopicPartition], OnVerified], bool] | None = None

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
        INVALID_TXN_STATE; a producer that was fenced is INVALID_PRODUCER_EPOCH. Any other error is that of all
        partitions.
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
        if self.elsewhere is not None and self.elsewhere(wanted, partitions, done):
            return
        _AddOrVerifyRequest(self._transactions, self._call_later, wanted, partitions, done).send()


class _AddOrVerifyRequest:
    """One request to the coordinator, and the responder that turns its reply into one error per partition.

    A producer may begin its next transaction while markers of the last one are still being written. Where writing
    adds partitions the request waits here for a moment, which is shorter than a client's own backoff.
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

    def send(self) -> None:
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
        if too_early and self._tries < _MAX_TRIES:
            self._call_later(_RETRY_BACKOFF_S, self.send)
            return
        # Coordinators answer PRODUCER_FENCED, partitions INVALID_PRODUCER_EPOCH (KIP-588).
        if isinstance(error, ProducerFencedError):
            error = InvalidProducerEpochError(error.message)
        self._done(dict.fromkeys(self._partitions, error))


def error_from(code: int) -> ProtocolError | None:
    return None if code == 0 else BY_CODE.get(code, UnknownServerError)()
