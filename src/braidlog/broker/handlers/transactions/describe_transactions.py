"""Transactions for administrators: DescribeTransactions of the coordinator, DescribeProducers of a partition."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.config.topic_names import validate_name
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.time_slice import TimeSlice
from braidlog.net.exchange import Exchange
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.wire.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from braidlog.wire.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)

if TYPE_CHECKING:
    from braidlog.coordinator.txn.shard import TransactionCoordinatorShard


class DescribeTransactionsHandler:
    """DescribeTransactions (api 65): the state of transactional ids, each answered for itself."""

    def __init__(self, transactions: CoordinatorRuntime[TransactionCoordinatorShard], authorizer: Authorizer) -> None:
        self._transactions = transactions
        self._authorizer = authorizer

    async def handle(self, request: DescribeTransactionsRequest, exchange: Exchange) -> DescribeTransactionsResponse:
        time_slice = TimeSlice()
        states: list[TransactionState] = []
        for transactional_id in request.transactional_ids:
            state = await self._describe(transactional_id, exchange)
            if self._authorizer.enabled:
                names = [topic.topic for topic in state.topics]
                shown = self._authorizer.allowed(exchange, AclOperation.DESCRIBE, AclResourceType.TOPIC, names)
                state.topics = [topic for topic in state.topics if topic.topic in shown]
            states.append(state)
            await time_slice.yield_if_over()
        return DescribeTransactionsResponse(transaction_states=states)

    async def _describe(self, transactional_id: str, exchange: Exchange) -> TransactionState:
        try:
            self._authorizer.check(exchange, AclOperation.DESCRIBE, AclResourceType.TRANSACTIONAL_ID, transactional_id)
            state = await self._transactions.ask(
                transactional_id, lambda shard, responder, now: shard.describe(transactional_id, responder, now)
            )
        except ProtocolError as error:
            return TransactionState(transactional_id=transactional_id, error_code=error.code)
        assert isinstance(state, TransactionState)
        return state

    @staticmethod
    def error_response(
        request: DescribeTransactionsRequest, version: int, error: ProtocolError
    ) -> DescribeTransactionsResponse:
        states = [
            TransactionState(transactional_id=transactional_id, error_code=error.code)
            for transactional_id in request.transactional_ids
        ]
        return DescribeTransactionsResponse(transaction_states=states)


class DescribeProducersHandler:
    """DescribeProducers (api 61): what partitions know of their producers, and since when transactions are open."""

    def __init__(self, registry: PartitionRegistry, authorizer: Authorizer) -> None:
        self._registry = registry
        self._authorizer = authorizer

    def handle(
        self, request: DescribeProducersRequest, exchange: Exchange
    ) -> Generator[None, None, DescribeProducersResponse]:
        response = DescribeProducersResponse(topics=[])
        for topic in request.topics:
            answers: list[PartitionResponse] = []
            refused = self._refusal(topic.name, exchange)
            # One that is named again is described once: it may have many producers.
            for index in dict.fromkeys(topic.partition_indexes):
                answers.append(self._partition(topic.name, index, refused))
                yield
            response.topics.append(TopicResponse(name=topic.name, partitions=answers))
        return response

    def _refusal(self, topic: str, exchange: Exchange) -> ProtocolError | None:
        try:
            validate_name(topic)
            self._authorizer.check(exchange, AclOperation.READ, AclResourceType.TOPIC, topic)
        except ProtocolError as error:
            return error
        return None

    def _partition(self, topic: str, index: int, refused: ProtocolError | None) -> PartitionResponse:
        try:
            if refused is not None:
                raise refused
            # A follower knows them, too: who looks for hanging transactions asks one broker for all that it has.
            log = self._registry.require(topic, index).require_replica()
            return PartitionResponse(partition_index=index, active_producers=producers_of(log))
        except Exception as failure:
            error = to_protocol_error(failure, f"describe the producers of {topic}-{index}")
            message = error.message or f"there is no partition {index} of {topic!r}"
            return PartitionResponse(partition_index=index, error_code=error.code, error_message=message)

    @staticmethod
    def error_response(
        request: DescribeProducersRequest, version: int, error: ProtocolError
    ) -> DescribeProducersResponse:
        return DescribeProducersResponse(
            topics=[
                TopicResponse(
                    name=topic.name,
                    partitions=[
                        PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        )


def producers_of(log: UnifiedLog) -> list[ProducerState]:
    return [
        ProducerState(
            producer_id=entry.producer_id,
            producer_epoch=entry.epoch,
            last_sequence=entry.last_sequence,
            last_timestamp=entry.last_timestamp,
            coordinator_epoch=entry.coordinator_epoch,
            current_txn_start_offset=entry.txn_first_offset,
        )
        for entry in log.producer_state.producers.values()
    ]
