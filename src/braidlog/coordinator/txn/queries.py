"""What operators ask: DescribeTransactions and ListTransactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from braidlog.coordinator.txn.records import by_topic
from braidlog.coordinator.txn.transaction_metadata import BY_NAME, TransactionMetadata, TransactionState
from braidlog.wire.generated.describe_transactions import TopicData
from braidlog.wire.generated.describe_transactions import TransactionState as DescribedTransaction
from braidlog.wire.generated.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from braidlog.wire.generated.list_transactions import TransactionState as ListedTransaction


def describe(transaction: TransactionMetadata) -> DescribedTransaction:
    topics = by_topic(transaction.partitions)
    return DescribedTransaction(
        transactional_id=transaction.transactional_id,
        transaction_state=transaction.state.name,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.started_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[TopicData(topic=topic, partitions=indexes) for topic, indexes in topics.items()],
    )


def list_matching(
    transactions: Iterable[TransactionMetadata],
    request: ListTransactionsRequest,
    id_matches: Callable[[str], bool] | None,
    now_ms: int,
) -> ListTransactionsResponse:
    """`id_matches` stands for the pattern in the request, if there is one."""
    states = {BY_NAME[name] for name in request.state_filters if name in BY_NAME}
    producer_ids = set(request.producer_id_filters)

    def wanted(transaction: TransactionMetadata) -> bool:
        if producer_ids and transaction.producer_id not in producer_ids:
            return False
        if request.state_filters and transaction.state not in states:
            return False
        # As by Kafka, an id that never had a transaction counts as one that has been open forever.
        if request.duration_filter >= 0 and now_ms - transaction.started_ms <= request.duration_filter:
            return False
        if transaction.state == TransactionState.Dead:
            return False
        return id_matches is None or id_matches(transaction.transactional_id)

    return ListTransactionsResponse(
        unknown_state_filters=[name for name in request.state_filters if name not in BY_NAME],
        transaction_states=[
            ListedTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.producer_id,
                transaction_state=transaction.state.name,
            )
            for transaction in transactions
            if wanted(transaction)
        ],
    )
