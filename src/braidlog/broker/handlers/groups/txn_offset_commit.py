"""TxnOffsetCommit (api 28): offsets that count when, and only when, a producer's transaction commits.

v3   group metadata fences members that were left behind (KIP-447)
v4   TRANSACTION_ABORTABLE is understood
v5   the offsets' partition joins the transaction here, without AddOffsetsToTxn (KIP-890)

The transaction's coordinator is asked first, on whichever broker it is. Its answer may be overtaken by the marker of
the transaction's end: offsets that were appended then would wait for a marker for ever. So the partition's log holds a
`VerificationGuard` meanwhile, as for a produce.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.coordinators.add_partitions_manager import AddPartitionsToTxnManager
from braidlog.broker.handlers.groups.group_requests import (
    MergingResponder,
    caller_of,
    merged_topics,
    split_existing,
    split_readable,
)
from braidlog.config.topic_names import OFFSETS_TOPIC
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.group.topics import Topics
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidGroupIdError,
    InvalidTxnStateError,
    NetworkError,
    ProtocolError,
    TopicAuthorizationFailedError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.storage.producers.verification import VerificationGuard
from braidlog.wire.generated.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_LOADING_IS_UNDERSTOOD_FROM: Final = 2
_ABORTABLE_IS_UNDERSTOOD_FROM: Final = 4
_JOINS_THE_TRANSACTION_FROM: Final = 5
# Offsets are not numbered by their producer.
_NO_SEQUENCE: Final = -1
# How often the question is put where the end of the last transaction comes between.
_MOST_QUESTIONS: Final = 3


class OffsetsProducers(Protocol):
    """What the log of an offsets partition knows of producers: its `ProducerStateManager`."""

    def begin_verification(
        self, producer_id: int, epoch: int, sequence: int, now_ms: int
    ) -> VerificationGuard | None: ...

    def may_write(self, producer_id: int, epoch: int, verification: VerificationGuard | None) -> bool: ...


class TxnOffsetCommitHandler:
    def __init__(
        self,
        groups: CoordinatorRuntime[GroupCoordinatorShard],
        transactions: AddPartitionsToTxnManager,
        topics: Topics,
        verifies: Callable[[], bool],
        producers_of: Callable[[int], OffsetsProducers | None],
        clock: Clock,
        authorizer: Authorizer,
    ) -> None:
        """`producers_of`: of the log of an offsets partition; None where this broker has none."""
        self._groups = groups
        self._transactions = transactions
        self._topics = topics
        self._verifies = verifies
        self._producers_of = producers_of
        self._clock = clock
        self._authorizer = authorizer

    def handle(self, request: TxnOffsetCommitRequest, exchange: Exchange) -> None:
        check = self._authorizer.check
        check(exchange, AclOperation.WRITE, AclResourceType.TRANSACTIONAL_ID, request.transactional_id)
        check(exchange, AclOperation.READ, AclResourceType.GROUP, request.group_id)
        request.topics, forbidden = split_readable(self._authorizer, exchange, request.topics)
        request.topics, unknown = split_existing(request.topics, self._topics)
        refused = [_answer(topic, topic.partitions, TopicAuthorizationFailedError.code) for topic in forbidden]
        refused += [_answer(topic, missing, UnknownTopicOrPartitionError.code) for topic, missing in unknown]

        def merge(response: TxnOffsetCommitResponse) -> None:
            response.topics = merged_topics(refused, response.topics, lambda topic: topic.name)

        responder = MergingResponder(exchange, TxnOffsetCommitResponse, self.error_response, merge)
        if not request.topics:
            responder.answer(TxnOffsetCommitResponse())
            return
        if not request.group_id:
            responder.fail(InvalidGroupIdError("offsets are committed for a group; its id is empty"))
            return
        caller = caller_of(exchange)
        partition = self._groups.partition_of(request.group_id)

        def commit() -> None:
            self._groups.submit(
                partition, responder, lambda shard, now: shard.commit_txn_offsets(request, caller, responder, now)
            )

        joins = exchange.version >= _JOINS_THE_TRANSACTION_FROM
        if not joins and not self._verifies():
            commit()
            return
        self._ask(request, partition, joins, commit, responder.fail, _MOST_QUESTIONS)
        if not exchange.finished:
            # The check may take longer than a round; what the producer sends next must not overtake its offsets.
            exchange.channel.mute()

    def _ask(
        self,
        request: TxnOffsetCommitRequest,
        partition: int,
        joins: bool,
        commit: Callable[[], None],
        refuse: Callable[[ProtocolError], None],
        questions_left: int,
    ) -> None:
        producer_id, epoch = request.producer_id, request.producer_epoch
        place = TopicPartition(OFFSETS_TOPIC, partition)
        producers = self._producers_of(partition)
        held: VerificationGuard | None = None
        if producers is not None:
            held = producers.begin_verification(producer_id, epoch, _NO_SEQUENCE, self._clock.wall_ms())

        def checked(errors: dict[TopicPartition, ProtocolError | None]) -> None:
            error = errors.get(place)
            now = self._producers_of(partition)
            if error is not None:
                refuse(error)
            elif now is None or now.may_write(producer_id, epoch, held):
                # Appended in the same step; a broker that has no such log is no coordinator, and says so.
                commit()
            elif joins and questions_left > 1:
                # Each transaction has an epoch of its own: what came between was the end of the last one.
                self._ask(request, partition, joins, commit, refuse, questions_left - 1)
            else:
                refuse(InvalidTxnStateError("the transaction ended before its offsets were written"))

        self._transactions.add_or_verify(request.transactional_id, producer_id, epoch, [place], joins, checked)

    @staticmethod
    def error_response(request: TxnOffsetCommitRequest, version: int, error: ProtocolError) -> TxnOffsetCommitResponse:
        code = error.code
        if code == NetworkError.code:
            # The transaction could not be verified; this is what older clients try again after.
            code = CoordinatorLoadInProgressError.code
        if code == CoordinatorLoadInProgressError.code and version < _LOADING_IS_UNDERSTOOD_FROM:
            # Producers of that time crash over the other one.
            code = CoordinatorNotAvailableError.code
        elif code == TransactionAbortableError.code and version < _ABORTABLE_IS_UNDERSTOOD_FROM:
            code = InvalidTxnStateError.code
        return TxnOffsetCommitResponse(topics=[_answer(topic, topic.partitions, code) for topic in request.topics])


def _answer(
    topic: TxnOffsetCommitRequestTopic, partitions: list[TxnOffsetCommitRequestPartition], code: int
) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=wanted.partition_index, error_code=code)
            for wanted in partitions
        ],
    )
