"""TxnOffsetCommit (api 28): offsets that count when, and only when, a producer's transaction commits.

v3   group metadata fences members that were left behind (KIP-447)
v4   TRANSACTION_ABORTABLE is understood
v5   the offsets' partition joins the transaction here, without AddOffsetsToTxn (KIP-890)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from braidlog.broker.coordinators.add_partitions_manager import AddPartitionsToTxnManager
from braidlog.broker.handlers.groups.group_requests import MergingResponder, caller_of, merged_topics, split_existing
from braidlog.config.topic_names import OFFSETS_TOPIC
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.group.topics import Topics
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidGroupIdError,
    InvalidTxnStateError,
    NetworkError,
    ProtocolError,
    TransactionAbortableError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
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


class TxnOffsetCommitHandler:
    def __init__(
        self,
        groups: CoordinatorRuntime[GroupCoordinatorShard],
        transactions: AddPartitionsToTxnManager,
        topics: Topics,
        verifies: Callable[[], bool],
    ) -> None:
        self._groups = groups
        self._transactions = transactions
        self._topics = topics
        self._verifies = verifies

    def handle(self, request: TxnOffsetCommitRequest, exchange: Exchange) -> None:
        request.topics, unknown = split_existing(request.topics, self._topics)
        refused = [_answer(topic, missing, UnknownTopicOrPartitionError.code) for topic, missing in unknown]

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
        place = TopicPartition(OFFSETS_TOPIC, self._groups.partition_of(request.group_id))

        def checked(errors: dict[TopicPartition, ProtocolError | None]) -> None:
            error = errors.get(place)
            if error is not None:
                responder.fail(error)
                return
            self._groups.submit(
                place.partition, responder, lambda shard, now: shard.commit_txn_offsets(request, caller, responder, now)
            )

        joins = exchange.version >= _JOINS_THE_TRANSACTION_FROM
        if not joins and not self._verifies():
            checked({})
            return
        self._transactions.add_or_verify(
            request.transactional_id, request.producer_id, request.producer_epoch, [place], joins, checked
        )
        if not exchange.finished:
            # The check may take longer than a round; what the producer sends next must not overtake its offsets.
            exchange.channel.mute()

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
