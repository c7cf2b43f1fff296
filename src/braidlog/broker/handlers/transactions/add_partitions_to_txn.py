"""AddPartitionsToTxn (api 24): partitions join a transaction before data is sent to them.

v0–v3   of one producer; PRODUCER_FENCED from v2 on, before that INVALID_PRODUCER_EPOCH
v4      of many, as brokers ask each other; `verify_only` asks whether they have joined (KIP-890)
v5      TRANSACTION_ABORTABLE, before that INVALID_TXN_STATE
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.coordinators.early_requests import EarlyRequests
from braidlog.broker.coordinators.transaction_markers import error_code_for_version
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.broker.requests.pending_results import PendingResults
from braidlog.config.topic_names import is_internal
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.txn.shard import TransactionCoordinatorShard
from braidlog.coordinator.txn.transaction_metadata import TV_0, TV_2
from braidlog.core.protocol_errors import (
    OperationNotAttemptedError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from braidlog.wire.message import Message

_FENCED_FROM: Final = 2
_MANY_FROM: Final = 4


class AddPartitionsToTxnHandler:
    def __init__(
        self,
        transactions: CoordinatorRuntime[TransactionCoordinatorShard],
        early_requests: EarlyRequests,
        cache: MetadataCache,
        authorizer: Authorizer,
    ) -> None:
        self._authorizer = authorizer
        self._transactions = transactions
        self._early_requests = early_requests
        self._cache = cache

    def handle(self, request: AddPartitionsToTxnRequest, exchange: Exchange) -> None:
        version = exchange.version
        wanted = transactions_of(request, version)
        forbidden = self._forbidden(wanted, exchange) if self._authorizer.enabled else frozenset()
        pending: PendingResults[int, AddPartitionsToTxnResult] = PendingResults(
            lambda results: exchange.answer(_response(list(results.values()), version))
        )
        pending.expect(len(wanted))
        for number, transaction in enumerate(wanted):
            self._ask(transaction, version, forbidden, partial(pending.put, number))
        pending.all_asked()

    def _forbidden(self, wanted: list[AddPartitionsToTxnTransaction], exchange: Exchange) -> frozenset[str]:
        """Topics that the producer may not write to; a broker, which speaks of many transactions, may write to all."""
        if exchange.version >= _MANY_FROM:
            self._authorizer.check_cluster(exchange, AclOperation.CLUSTER_ACTION)
            return frozenset()
        (transaction,) = wanted
        write = AclOperation.WRITE
        named = transaction.transactional_id
        self._authorizer.check(exchange, write, AclResourceType.TRANSACTIONAL_ID, named)
        # The broker alone writes to internal topics.
        names = {topic.name for topic in transaction.topics}
        own = [name for name in names if not is_internal(name)]
        return frozenset(names) - self._authorizer.allowed(exchange, write, AclResourceType.TOPIC, own)

    def _ask(
        self,
        wanted: AddPartitionsToTxnTransaction,
        version: int,
        forbidden: frozenset[str],
        done: Callable[[AddPartitionsToTxnResult], None],
    ) -> None:
        if forbidden or self._any_unknown(wanted):
            done(_results(wanted, partial(self._unattempted, forbidden)))
            return
        part = _TransactionResponder(wanted, version, done)
        if wanted.verify_only:
            self._transactions.submit(
                wanted.transactional_id, part, lambda shard, now: shard.verify_partitions(wanted, part, now)
            )
        elif version < _MANY_FROM:
            self._early_requests.submit(
                wanted.transactional_id,
                part,
                lambda shard, responder, now: shard.add_partitions(wanted, TV_0, responder, now),
            )
        else:
            # At once, since other transactions are in the same request; the broker that asks comes again.
            self._transactions.submit(
                wanted.transactional_id, part, lambda shard, now: shard.add_partitions(wanted, TV_2, part, now)
            )

    def _any_unknown(self, wanted: AddPartitionsToTxnTransaction) -> bool:
        return any(not self._exists(topic.name, index) for topic in wanted.topics for index in topic.partitions)

    def _exists(self, topic: str, index: int) -> bool:
        image = self._cache.image.topic(topic)
        return image is not None and 0 <= index < len(image.partitions)

    def _unattempted(self, forbidden: frozenset[str], topic: str, index: int) -> int:
        """One partition that does not exist, or is not the producer's to write to, keeps all others out."""
        if topic in forbidden:
            return TopicAuthorizationFailedError.code
        known = self._exists(topic, index)
        return OperationNotAttemptedError.code if known else UnknownTopicOrPartitionError.code

    @staticmethod
    def error_response(
        request: AddPartitionsToTxnRequest, version: int, error: ProtocolError
    ) -> AddPartitionsToTxnResponse:
        code = error_code_for_version(error, version, _FENCED_FROM)
        if version >= _MANY_FROM:
            return AddPartitionsToTxnResponse(error_code=code)
        results = [_results(wanted, lambda topic, index: code) for wanted in transactions_of(request, version)]
        return _response(results, version)


class _TransactionResponder:
    """The responder of one transaction."""

    def __init__(
        self, wanted: AddPartitionsToTxnTransaction, version: int, done: Callable[[AddPartitionsToTxnResult], None]
    ) -> None:
        self._wanted = wanted
        self._version = version
        self._done = done

    def answer(self, response: Message) -> None:
        assert isinstance(response, AddPartitionsToTxnResult)
        self._done(response)

    def fail(self, error: ProtocolError) -> None:
        code = error_code_for_version(error, self._version, _FENCED_FROM)
        self._done(_results(self._wanted, lambda topic, index: code))


def transactions_of(request: AddPartitionsToTxnRequest, version: int) -> list[AddPartitionsToTxnTransaction]:
    if version >= _MANY_FROM:
        return request.transactions
    return [
        AddPartitionsToTxnTransaction(
            transactional_id=request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            topics=request.v3_and_below_topics,
        )
    ]


def _response(results: list[AddPartitionsToTxnResult], version: int) -> AddPartitionsToTxnResponse:
    if version >= _MANY_FROM:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def _results(wanted: AddPartitionsToTxnTransaction, code_of: Callable[[str, int], int]) -> AddPartitionsToTxnResult:
    topics = [_topic_result(topic, code_of) for topic in wanted.topics]
    return AddPartitionsToTxnResult(transactional_id=wanted.transactional_id, topic_results=topics)


def _topic_result(topic: AddPartitionsToTxnTopic, code_of: Callable[[str, int], int]) -> AddPartitionsToTxnTopicResult:
    results = [
        AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code_of(topic.name, index))
        for index in topic.partitions
    ]
    return AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=results)
