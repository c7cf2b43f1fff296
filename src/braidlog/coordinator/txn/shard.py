"""The shard of one partition of `__transaction_state`: decides, writes down, and sees transactions to their end.

    EndTxn → Prepare record committed → EndTxn answered → markers sent → every partition confirmed → Complete record

The first record decides the outcome for good; all that follows is repeated after a restart until it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from braidlog.coordinator.deadlines import Deadlines
from braidlog.coordinator.effects import Effects, Moment, Responder
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.coordinator.txn import queries, records
from braidlog.coordinator.txn.actions import SendMarkers
from braidlog.coordinator.txn.add_partitions import add_partitions, validate_producer
from braidlog.coordinator.txn.end_txn import end_transaction
from braidlog.coordinator.txn.init_producer_id import ProducerIdAndEpoch, init_producer_id
from braidlog.coordinator.txn.settings import TxnSettings
from braidlog.coordinator.txn.transaction_metadata import NO_ID, TV_0, TransactionMetadata
from braidlog.coordinator.txn.transaction_state import TransactionState
from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    ProtocolError,
    TransactionAbortableError,
    TransactionalIdAuthorizationFailedError,
    TransactionalIdNotFoundError,
    UnsupportedVersionError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from braidlog.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from braidlog.wire.generated.end_txn import EndTxnRequest, EndTxnResponse
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from braidlog.wire.generated.list_transactions import ListTransactionsRequest

OFFSETS_TOPIC: Final = "__consumer_offsets"

# What a deadline is for: to abort an open transaction, to forget an idle id, to write Complete once more.
TIMEOUT: Final = "timeout"
EXPIRY: Final = "expiry"
COMPLETION: Final = "completion"
# What is due at once goes into batches of about this many bytes: one that the log finds too large would be refused each
# time, and with it the end of every transaction in it.
_PORTION_BYTES: Final = 128 * 1024
_RECORD_OVERHEAD: Final = 32
# What could not be written is tried again after this many seconds.
_RETRY_S: Final = 1.0
# A timeout that never comes (KIP-939).
_NO_TIMEOUT_MS: Final = 0x7FFF_FFFF


class TransactionCoordinatorShard:
    """Implements `coordinator.shard.Shard`; `coordinator_epoch` is the leader epoch of its partition.

    `take_producer_id` gives a fresh producer id, or raises the error that tells the client to try again.
    """

    def __init__(
        self, settings: Callable[[], TxnSettings], take_producer_id: Callable[[], int], coordinator_epoch: int
    ) -> None:
        self._settings = settings
        self._take_producer_id = take_producer_id
        self.coordinator_epoch = coordinator_epoch
        self.transactions: dict[str, TransactionMetadata] = {}
        # Soft, rebuilt by `loaded`: the attempt under way for each Prepare state, with what it still waits for.
        self._sending: dict[str, tuple[SendMarkers, dict[TopicPartition, None]]] = {}
        self._deadlines: Deadlines[tuple[str, str]] = Deadlines()
        # None until loaded: then deadlines follow what is replayed.
        self._now: Moment | None = None

    # Producers

    def init_producer_id(self, request: InitProducerIdRequest, responder: Responder, now: Moment) -> Effects:
        transactional_id = request.transactional_id or ""
        if not transactional_id:
            raise InvalidRequestError("a transactional id must not be empty")
        if request.enable_2pc:
            raise TransactionalIdAuthorizationFailedError("two-phase commit of others is not served")
        if request.keep_prepared_txn:
            raise UnsupportedVersionError("prepared transactions of others are not served")
        if not 0 < request.transaction_timeout_ms <= self._settings().max_timeout_ms:
            raise InvalidTransactionTimeoutError("the timeout must be above 0 and at most transaction.max.timeout.ms")
        expected = (
            ProducerIdAndEpoch(request.producer_id, request.producer_epoch) if request.producer_id != NO_ID else None
        )
        before = self.transactions.get(transactional_id)
        take_id = self._take_producer_id
        timeout_ms = request.transaction_timeout_ms
        after = init_producer_id(before, transactional_id, timeout_ms, expected, take_id, now.wall_ms)
        effects = self._begin_operation(now)
        if after is not before:
            self._write(effects, after, now)
        if after.prepared:
            error = ConcurrentTransactionsError("the open transaction is being aborted; try again")
            effects.reply(responder, error)
        else:
            response = InitProducerIdResponse(producer_id=after.producer_id, producer_epoch=after.producer_epoch)
            effects.reply(responder, response)
        return effects

    # Partitions

    def add_partitions(
        self, wanted: AddPartitionsToTxnTransaction, client_version: int, responder: Responder, now: Moment
    ) -> Effects:
        """Answered by an AddPartitionsToTxnResult; whatever fails, fails for all partitions."""
        partitions = partitions_of(wanted)
        effects = self._begin_operation(now)
        producer = (wanted.transactional_id, wanted.producer_id, wanted.producer_epoch)
        self._add_partitions(effects, producer, frozenset(partitions), client_version, now)
        effects.reply(responder, _result(wanted.transactional_id, partitions, frozenset(partitions)))
        return effects

    def verify_partitions(self, wanted: AddPartitionsToTxnTransaction, responder: Responder, now: Moment) -> Effects:
        """Answered by an AddPartitionsToTxnResult; what is not in the transaction is TRANSACTION_ABORTABLE."""
        if not wanted.transactional_id:
            raise InvalidRequestError("a transactional id must not be empty")
        found = validate_producer(
            self.transactions.get(wanted.transactional_id), wanted.producer_id, wanted.producer_epoch
        )
        effects = self._begin_operation(now)
        effects.reply(responder, _result(wanted.transactional_id, partitions_of(wanted), found.partitions))
        return effects

    def add_offsets(
        self, request: AddOffsetsToTxnRequest, offsets_partition: int, responder: Responder, now: Moment
    ) -> Effects:
        effects = self._begin_operation(now)
        producer = (request.transactional_id, request.producer_id, request.producer_epoch)
        self._add_partitions(
            effects, producer, frozenset([TopicPartition(OFFSETS_TOPIC, offsets_partition)]), TV_0, now
        )
        effects.reply(responder, AddOffsetsToTxnResponse())
        return effects

    def _add_partitions(
        self,
        effects: Effects,
        producer: tuple[str, int, int],
        partitions: frozenset[TopicPartition],
        client_version: int,
        now: Moment,
    ) -> None:
        transactional_id, producer_id, epoch = producer
        if not transactional_id:
            raise InvalidRequestError("a transactional id must not be empty")
        before = self.transactions.get(transactional_id)
        after = add_partitions(before, producer_id, epoch, partitions, client_version, now.wall_ms)
        if after is not None:
            self._write(effects, after, now)

    # Ends

    def end_txn(self, request: EndTxnRequest, bumps_epoch: bool, responder: Responder, now: Moment) -> Effects:
        """`bumps_epoch`: the client speaks transaction version 2, and is told its next producer id and epoch."""
        if not request.transactional_id:
            raise InvalidRequestError("a transactional id must not be empty")
        before = self.transactions.get(request.transactional_id)
        after = end_transaction(
            before,
            request.producer_id,
            request.producer_epoch,
            request.committed,
            bumps_epoch,
            self._take_producer_id,
            now.wall_ms,
        )
        effects = self._begin_operation(now)
        if after is not None:
            self._write(effects, after, now)
        latest = after or before
        response = EndTxnResponse()
        if bumps_epoch and latest is not None:
            rotates = latest.next_id != NO_ID
            response.producer_id = latest.next_id if rotates else latest.producer_id
            response.producer_epoch = 0 if rotates else latest.producer_epoch
        effects.reply(responder, response)
        return effects

    def markers_written(self, action: SendMarkers, partitions: list[TopicPartition], now: Moment) -> Effects:
        """These have the marker, or are gone for good; the last of them completes the transaction."""
        effects = self._begin_operation(now)
        attempt, waiting = self._sending.get(action.transactional_id, (None, {}))
        if attempt is not action:
            return effects
        for partition in partitions:
            waiting.pop(partition, None)
        if not waiting:
            self._complete(effects, action.transactional_id, now)
        return effects

    def retry_markers(self, action: SendMarkers, now: Moment) -> Effects:
        """Send once more what of the attempt is still missing, unless the attempt is over."""
        effects = self._begin_operation(now)
        attempt, waiting = self._sending.get(action.transactional_id, (None, {}))
        if attempt is action and waiting:
            transaction = self.transactions[action.transactional_id]
            effects.act(self._send(transaction, list(waiting), action.attempt + 1))
        return effects

    def _complete(self, effects: Effects, transactional_id: str, now: Moment) -> None:
        transaction = self.transactions[transactional_id]
        # Gone again as soon as the record is there.
        self._deadlines.set((COMPLETION, transactional_id), now.monotonic + _RETRY_S)
        self._write(effects, transaction.completed(now.wall_ms), now)

    # Questions

    def describe(self, transactional_id: str, responder: Responder, now: Moment) -> Effects:
        """Answered by the TransactionState of DescribeTransactions."""
        if not transactional_id:
            raise InvalidRequestError("a transactional id must not be empty")
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            raise TransactionalIdNotFoundError(f"there is no transactional id {transactional_id}")
        effects = self._begin_operation(now)
        effects.reply(responder, queries.describe(transaction))
        return effects

    def list_transactions(
        self,
        request: ListTransactionsRequest,
        id_matches: Callable[[str], bool] | None,
        responder: Responder,
        now: Moment,
    ) -> Effects:
        """Answered by a ListTransactionsResponse."""
        effects = self._begin_operation(now)
        matching = queries.list_matching(self.transactions.values(), request, id_matches, now.wall_ms)
        effects.reply(responder, matching)
        return effects

    # Writing

    def _begin_operation(self, now: Moment) -> Effects:
        self._now = now
        return Effects()

    def _write(self, effects: Effects, after: TransactionMetadata, now: Moment) -> None:
        """Write a transaction down; what was decided is told to its partitions, if there are any."""
        transactional_id = after.transactional_id
        effects.write(records.encode_key(transactional_id), records.encode_value(after))
        if not after.prepared:
            return
        if after.partitions:
            effects.act(self._send(after, sorted(after.partitions), 0))
        else:
            completed = after.completed(now.wall_ms)
            effects.write(records.encode_key(transactional_id), records.encode_value(completed))

    def _send(self, transaction: TransactionMetadata, partitions: list[TopicPartition], attempt: int) -> SendMarkers:
        action = SendMarkers(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            transaction.commits,
            partitions,
            self.coordinator_epoch,
            attempt,
        )
        self._sending[transaction.transactional_id] = (action, dict.fromkeys(partitions))
        return action

    # Shard

    def replay(self, record: ReplayedRecord) -> None:
        transactional_id, transaction = records.decode(record)
        if transaction is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = transaction
        if self._now is not None:
            self._arm(transactional_id, transaction, self._now)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, commits: bool) -> None:
        """Nobody writes to this topic in transactions."""

    def _arm(self, transactional_id: str, transaction: TransactionMetadata | None, now: Moment) -> None:
        """Let the soft state follow what was written down."""
        deadlines = self._deadlines
        ongoing = transaction is not None and transaction.state == TransactionState.Ongoing
        if transaction is None or not transaction.idle:
            deadlines.cancel((EXPIRY, transactional_id))
        else:
            left_ms = transaction.updated_ms + self._settings().id_expiration_ms - now.wall_ms
            deadlines.set((EXPIRY, transactional_id), now.monotonic + max(0, left_ms) / 1000)
        if transaction is not None and ongoing and transaction.timeout_ms < _NO_TIMEOUT_MS:
            left_ms = min(transaction.started_ms - now.wall_ms, 0) + transaction.timeout_ms
            deadlines.set((TIMEOUT, transactional_id), now.monotonic + max(0, left_ms) / 1000)
        else:
            deadlines.cancel((TIMEOUT, transactional_id))
        if transaction is None or not transaction.prepared:
            deadlines.cancel((COMPLETION, transactional_id))
            self._sending.pop(transactional_id, None)

    def on_loaded(self, now: Moment) -> Effects:
        """Take up what a restart interrupted: markers of whatever was decided are sent again, all of them."""
        effects = self._begin_operation(now)
        for transactional_id, transaction in self.transactions.items():
            self._arm(transactional_id, transaction, now)
            if not transaction.prepared:
                continue
            if transaction.partitions:
                effects.act(self._send(transaction, sorted(transaction.partitions), 0))
            else:
                self._deadlines.set((COMPLETION, transactional_id), now.monotonic)
        return effects

    def next_deadline(self) -> float | None:
        return self._deadlines.next()

    def expire(self, now: Moment) -> Effects:
        effects = self._begin_operation(now)
        room = _PORTION_BYTES
        for deadline in self._deadlines.pop_due(now.monotonic):
            if room > 0:
                part = self._due(*deadline, now)
                size = sum(len(key) + len(value or b"") + _RECORD_OVERHEAD for key, value, _ in part.records)
                if size <= room or not effects.records:
                    effects.add(part)
                    room -= size
                    continue
                # Left for the next portion, and whatever is due after it as well.
                room = 0
            self._deadlines.set(deadline, now.monotonic)
        return effects

    def _due(self, kind: str, transactional_id: str, now: Moment) -> Effects:
        """The records, once there, cancel the deadline; should they be refused, the next try is due a little later."""
        effects = Effects()
        transaction = self.transactions.get(transactional_id)
        if transaction is None:
            return effects
        if kind == TIMEOUT and transaction.state == TransactionState.Ongoing:
            self._deadlines.set((kind, transactional_id), now.monotonic + _RETRY_S)
            self._write(effects, transaction.fenced(now.wall_ms, may_return=True), now)
        elif kind == COMPLETION and transaction.prepared:
            self._complete(effects, transactional_id, now)
        elif kind == EXPIRY and transaction.idle:
            self._deadlines.set((kind, transactional_id), now.monotonic + _RETRY_S)
            effects.write(records.encode_key(transactional_id), None)
        return effects

    def on_unloaded(self, error: ProtocolError) -> Effects:
        """Nobody waits in here: every request is answered by the operation that served it."""
        return Effects()

    def durable_state(self) -> object:
        return {
            transactional_id: records.encode_value(transaction)
            for transactional_id, transaction in self.transactions.items()
        }


def partitions_of(wanted: AddPartitionsToTxnTransaction) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in wanted.topics for index in topic.partitions]


def _result(
    transactional_id: str, partitions: list[TopicPartition], known: frozenset[TopicPartition]
) -> AddPartitionsToTxnResult:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for partition in partitions:
        topic = topics.get(partition.topic)
        if topic is None:
            topic = topics[partition.topic] = AddPartitionsToTxnTopicResult(name=partition.topic)
        code = 0 if partition in known else TransactionAbortableError.code
        result = AddPartitionsToTxnPartitionResult(partition_index=partition.partition, partition_error_code=code)
        topic.results_by_partition.append(result)
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=list(topics.values()))
