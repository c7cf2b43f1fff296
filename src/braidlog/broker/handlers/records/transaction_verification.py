"""Before transactional batches are appended: does their coordinator know of the transaction (KIP-890)?

    batches of an open transaction   go ahead
    any other                        hold a `VerificationGuard` of the log, ask the coordinator, go ahead if still held

Without the question a produce that was late would begin a transaction that never ends, and every read_committed reader
of the partition would hang. From Produce v12 on the question also adds the partitions to the transaction.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    CorruptMessageError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    NetworkError,
    NotCoordinatorError,
    NotEnoughReplicasError,
    ProducerFencedError,
    ProtocolError,
    TransactionAbortableError,
)
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.storage.producers.verification import VerificationGuard
from braidlog.wire.generated.produce import ProduceRequest
from braidlog.wire.records.batch import ATTRIBUTES_AT, MAGIC_AT, TRANSACTIONAL, BatchHeader, read_header

# From here on clients know TRANSACTION_ABORTABLE; from there on producing to a partition adds it.
_ABORTABLE_FROM: Final = 11
_ADDS_FROM: Final = 12

# What passes: old clients retry it only under the name of an error that they know to be passing.
_PASSING: Final = (
    ConcurrentTransactionsError.code,
    NetworkError.code,
    CoordinatorLoadInProgressError.code,
    CoordinatorNotAvailableError.code,
    NotCoordinatorError.code,
)

PartitionErrors = dict[TopicPartition, ProtocolError | None]

# (transactional id, producer id, producer epoch, partitions, whether to add them, who wants to know)
AddOrVerify = Callable[[str, int, int, list[TopicPartition], bool, Callable[[PartitionErrors], None]], None]


class TransactionVerification:
    """The transactional batches of one produce request, from the question to the append."""

    def __init__(self, version: int, required: bool) -> None:
        self.version = version
        self.adds = version >= _ADDS_FROM
        self.required = required or self.adds
        self.producer_id = -1
        self.producer_epoch = -1
        # Partitions that the coordinator must be asked about, and what is held for them meanwhile.
        self.guards: dict[TopicPartition, VerificationGuard] = {}
        self.refused: dict[TopicPartition, ProtocolError] = {}
        self.answered = False

    def prepare(
        self,
        request: ProduceRequest,
        registry: PartitionRegistry,
        now_ms: int,
        authorized: frozenset[str] | None = None,
    ) -> None:
        """Find out what to ask, where only some topics may be written to, about those alone.

        Raises InvalidProducerIdMappingError for batches of more than one producer.
        """
        self.guards = {}
        batches = self._batches(request, registry, authorized)
        for _, header in batches:
            if self.producer_id < 0:
                self.producer_id = header.producer_id
                self.producer_epoch = header.producer_epoch
            elif self.producer_id != header.producer_id or self.producer_epoch != header.producer_epoch:
                raise InvalidProducerIdMappingError("transactional records contained more than one producer id")
        if not self.required:
            return
        for target, header in batches:
            partition = registry.get(target.topic, target.partition)
            # Where there is no log to append to, the append says so better.
            if partition is None or partition.log is None or partition.leader != partition.broker_id:
                continue
            held = partition.log.producer_state.begin_verification(
                header.producer_id, header.producer_epoch, header.base_sequence, now_ms
            )
            if held is not None:
                self.guards[target] = held

    def _batches(
        self, request: ProduceRequest, registry: PartitionRegistry, authorized: frozenset[str] | None
    ) -> list[tuple[TopicPartition, BatchHeader]]:
        found: list[tuple[TopicPartition, BatchHeader]] = []
        for topic in request.topic_data:
            name: str | None = topic.name
            if self.version >= 13:
                name = registry.name_of(topic.topic_id)
            if name is None or (authorized is not None and name not in authorized):
                continue
            for data in topic.partition_data:
                records = data.records
                if not isinstance(records, ByteSlice) or not is_transactional(records):
                    continue
                header = _header(records)
                if header is not None and header.producer_id >= 0:
                    found.append((TopicPartition(name, data.index), header))
        return found

    def must_verify_again(self, answers: PartitionErrors, registry: PartitionRegistry) -> bool:
        """Whether the end of the producer's last transaction came to a partition while the answer was awaited.

        Where each transaction has an epoch of its own the question may be put once more; otherwise the batch might be
        that last transaction's.
        """
        if not self.adds or any(error is not None for error in answers.values()):
            return False
        for target, held in self.guards.items():
            partition = registry.get(target.topic, target.partition)
            log = None if partition is None else partition.log
            if log is not None and not log.producer_state.may_write(self.producer_id, self.producer_epoch, held):
                return True
        return False

    def take(self, answers: PartitionErrors) -> None:
        self.answered = True
        for target in self.guards:
            error = answers.get(target)
            if error is not None:
                self.refused[target] = error_for_version(error, self.version)

    def admit(self, target: TopicPartition, records: ByteSlice, log: UnifiedLog) -> None:
        """Raises the error that is answered instead of an append."""
        if not self.required or not is_transactional(records):
            return
        header = read_header(records.buffer, records.start, records.end)
        if header.producer_id < 0:
            return
        if not log.producer_state.may_write(header.producer_id, header.producer_epoch, self.guards.get(target)):
            raise InvalidTxnStateError("the batch is not part of a transaction that is under way")


def error_for_version(error: ProtocolError, version: int) -> ProtocolError:
    """The coordinator's error as a producer of this version understands it."""
    if error.code == ProducerFencedError.code:
        return InvalidProducerEpochError(error.message)
    if error.code == TransactionAbortableError.code and version < _ABORTABLE_FROM:
        return InvalidTxnStateError("the partition was not added to the transaction")
    if error.code in _PASSING:
        return NotEnoughReplicasError(
            f"unable to verify that the partition was added to the transaction: {error.name}; try again"
        )
    return error


def is_transactional(records: ByteSlice) -> bool:
    """By a look at the first batch's attributes; whether they are sound is for the validation to say."""
    start = records.start
    if records.end - start <= ATTRIBUTES_AT + 1 or records.buffer[start + MAGIC_AT] != 2:
        return False
    return records.buffer[start + ATTRIBUTES_AT + 1] & TRANSACTIONAL != 0


def has_transaction(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if isinstance(records, ByteSlice) and is_transactional(records):
                return True
    return False


def _header(records: ByteSlice) -> BatchHeader | None:
    """None where the validation will find fault with it."""
    try:
        return read_header(records.buffer, records.start, records.end)
    except CorruptMessageError:
        return None
