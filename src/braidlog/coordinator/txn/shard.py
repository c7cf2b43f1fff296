"""The shard of one partition of `__transaction_state`: decides, writes down, and sees transactions to their end.

    EndTxn → Prepare record committed → EndTxn answered → markers sent → every partition confirmed → Complete record

The first record decides the outcome for good; all that follows is repeated after a restart until it is done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from braidlog.config.topic_names import OFFSETS_TOPIC
from braidlog.coordinator.deadlines import Deadlines
from braidlog.coordinator.effects import MAX_PORTION_BYTES, Effects, Moment, Responder, SendMarkers
from braidlog.coordinator.shard import ReplayedRecord
from braidlog.coordinator.txn import queries, records
from braidlog.coordinator.txn.add_partitions import add_partitions, validate_producer
from braidlog.coordinator.txn.end_txn import end_bumping_epoch, end_keeping_epoch
from braidlog.coordinator.txn.init_producer_id import ProducerIdAndEpoch, init_producer_id
from braidlog.coordinator.txn.transaction_metadata import (
    NO_ID,
    TV_0,
    TransactionMetadata,
    TransactionState,
    TxnSettings,
)
from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
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

# What a deadline is for: to abort an open transaction, to forget an idle id, to write Complete once more.
TIMEOUT: Final = "timeout"
EXPIRY: Final = "expiry"
COMPLETION: Final = "completion"
# To write down once more what is there, in a version that others read.
REWRITE: Final = "rewrite"
# What could not be written is tried again after this many seconds.
_RETRY_S: Final = 1.0


def _newest_value_version() -> int:
    return records.VALUE_VERSION


class TransactionCoordinatorShard:
    """Implements `CoordinatorShard`; `coordinator_epoch` is the leader epoch of its partition.

    `take_producer_id` gives a fresh producer id, or raises the error that tells the client to try again.
    """

    def __init__(
        self,
        settings: Callable[[], TxnSettings],
        take_producer_id: Callable[[], int],
        coordinator_epoch: int,
        value_version: Callable[[], int] = _newest_value_version,
    ) -> None:
        """`value_version` is the one in which the other brokers can read what is written."""
        self._value_version = value_version
        self._settings = settings
        self._take_producer_id = take_producer_id
        self.coordinator_epoch = coordinator_epoch
        self.transactions: dict[str, TransactionMetadata] = {}
        # Not in the log, rebuilt by `on_loaded`: the attempt under way for each Prepare state, and what it waits for.
        self._sending: dict[str, tuple[SendMarkers, dict[TopicPartition, None]]] = {}
        self._deadlines: Deadlines[tuple[str, str]] = Deadlines()
        # None until loaded; from then on deadlines follow what is replayed.
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
        """`bumps_epoch`: the client speaks transaction version 2, and the reply has its next producer id and epoch."""
        if not request.transactional_id:
            raise InvalidRequestError("a transactional id must not be empty")
        before = self.transactions.get(request.transactional_id)
        if before is None:
            raise InvalidProducerIdMappingError("this transactional id is not known")
        producer_id, epoch, commits = request.producer_id, request.producer_epoch, request.committed
        if bumps_epoch:
            after = end_bumping_epoch(before, producer_id, epoch, commits, self._take_producer_id, now.wall_ms)
        else:
            after = end_keeping_epoch(before, producer_id, epoch, commits, now.wall_ms)
        effects = self._begin_operation(now)
        if after is not None:
            self._write(effects, after, now)
        latest = after or before
        response = EndTxnResponse()
        if bumps_epoch:
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
            transaction = self.transactions[action.transactional_id]
            # Gone again as soon as the record is there.
            self._deadlines.set((COMPLETION, action.transactional_id), now.monotonic + _RETRY_S)
            self._write(effects, transaction.completed(now.wall_ms), now)
        return effects

    def retry_markers(self, action: SendMarkers, now: Moment) -> Effects:
        """Send once more what of the attempt is still missing, unless the attempt is over."""
        effects = self._begin_operation(now)
        attempt, waiting = self._sending.get(action.transactional_id, (None, {}))
        if attempt is action and waiting:
            transaction = self.transactions[action.transactional_id]
            again = transaction.markers(list(waiting), self.coordinator_epoch, action.attempt + 1)
            self._sending[again.transactional_id] = (again, waiting)
            effects.act(again)
        return effects

    # Changes of the cluster

    def write_all_again(self, now: Moment) -> Effects:
        """Other brokers are to read older records: what is there is written anew in them, a portion at a time."""
        effects = self._begin_operation(now)
        for transactional_id in self.transactions:
            self._deadlines.set((REWRITE, transactional_id), now.monotonic)
        return effects

    def abort_all(self, now: Moment) -> Effects:
        """Every open transaction ends as if its timeout was over."""
        effects = self._begin_operation(now)
        for transactional_id, transaction in self.transactions.items():
            if transaction.state == TransactionState.Ongoing:
                self._deadlines.set((TIMEOUT, transactional_id), now.monotonic)
        return effects

    # Queries

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
        """Write a transaction down; one that was decided sends markers to its partitions, if there are any."""
        transactional_id = after.transactional_id
        effects.write(records.encode_key(transactional_id), records.encode_value(after, self._value_version()))
        if not after.prepared:
            return
        if after.partitions:
            markers = after.markers(sorted(after.partitions), self.coordinator_epoch)
            self._sending[transactional_id] = (markers, dict.fromkeys(markers.partitions))
            effects.act(markers)
        else:
            completed = after.completed(now.wall_ms)
            effects.write(records.encode_key(transactional_id), records.encode_value(completed, self._value_version()))

    # Shard

    def replay(self, record: ReplayedRecord) -> None:
        transactional_id, transaction = records.decode(record)
        if transaction is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = transaction
        if self._now is not None:
            # Deadlines and attempts follow what was written down.
            expiration_ms = self._settings().id_expiration_ms
            expires_at = None if transaction is None else transaction.expires_at(expiration_ms, self._now)
            times_out_at = None if transaction is None else transaction.times_out_at(self._now)
            self._deadlines.set((EXPIRY, transactional_id), expires_at)
            self._deadlines.set((TIMEOUT, transactional_id), times_out_at)
            if transaction is None or not transaction.prepared:
                self._deadlines.cancel((COMPLETION, transactional_id))
                self._sending.pop(transactional_id, None)

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, commits: bool) -> None:
        """No records of this topic belong to a transaction."""

    def on_loaded(self, now: Moment) -> Effects:
        """Take up what a restart interrupted: markers of whatever was decided are sent again, all of them."""
        effects = self._begin_operation(now)
        for transactional_id, transaction in self.transactions.items():
            expires_at = transaction.expires_at(self._settings().id_expiration_ms, now)
            self._deadlines.set((EXPIRY, transactional_id), expires_at)
            self._deadlines.set((TIMEOUT, transactional_id), transaction.times_out_at(now))
            if not transaction.prepared:
                continue
            if transaction.partitions:
                markers = transaction.markers(sorted(transaction.partitions), self.coordinator_epoch)
                self._sending[transactional_id] = (markers, dict.fromkeys(markers.partitions))
                effects.act(markers)
            else:
                self._deadlines.set((COMPLETION, transactional_id), now.monotonic)
        return effects

    def next_deadline(self) -> float | None:
        return self._deadlines.next()

    def expire(self, now: Moment) -> Effects:
        effects = self._begin_operation(now)
        # A batch too large for the log would be refused each time, and with it the end of every transaction in it.
        bytes_left = MAX_PORTION_BYTES
        for deadline in self._deadlines.pop_due(now.monotonic):
            if bytes_left > 0:
                part = self._due(*deadline, now)
                size = sum(record.size for record in part.records)
                if size <= bytes_left or not effects.records:
                    effects.add(part)
                    bytes_left -= size
                    continue
                # Left for the next portion, and whatever is due after it as well.
                bytes_left = 0
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
            self._deadlines.set((kind, transactional_id), now.monotonic + _RETRY_S)
            self._write(effects, transaction.completed(now.wall_ms), now)
        elif kind == REWRITE and transaction.idle:
            # What is open is written with its end. Should this be refused, the next change writes it.
            effects.write(
                records.encode_key(transactional_id), records.encode_value(transaction, self._value_version())
            )
        elif kind == EXPIRY and transaction.idle:
            self._deadlines.set((kind, transactional_id), now.monotonic + _RETRY_S)
            effects.write(records.encode_key(transactional_id), None)
        return effects

    def on_unloaded(self, error: ProtocolError) -> Effects:
        """No request waits here: each is answered by the operation that served it."""
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
