"""Transactions as coordinators and partitions tell of them, and the two ways to end one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from braidlog.client.admin import transactions as api
from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.transactions import ActiveProducer, FencedProducer
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import (
    InvalidProducerEpochError,
    NotLeaderOrFollowerError,
    TransactionalIdNotFoundError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.generated import describe_transactions as described
from braidlog.wire.generated.describe_producers import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from braidlog.wire.generated.init_producer_id import InitProducerIdResponse
from braidlog.wire.generated.list_transactions import ListTransactionsResponse, TransactionState
from braidlog.wire.generated.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from support.admin_fakes import ScriptedCluster, ScriptedNode
from support.retry_clock import RetryClock

PLACE = TopicPartition("orders", 0)
OPEN = ActiveProducer(PLACE, 7, 2, -1, 0, 1_000, 40)


def transaction(name: str = "t", state: str = "Ongoing", producer_id: int = 7, *partitions: int) -> Any:
    return described.TransactionState(
        transactional_id=name,
        transaction_state=state,
        producer_id=producer_id,
        transaction_timeout_ms=60_000,
        topics=[described.TopicData(topic="orders", partitions=list(partitions))] if partitions else [],
    )


def knowing(*known: Any, **more: Any) -> Admin:
    """Transactions of a cluster whose coordinator knows these."""

    def listing(request: Any) -> ListTransactionsResponse:
        return ListTransactionsResponse(
            transaction_states=[
                TransactionState(
                    transactional_id=each.transactional_id,
                    producer_id=each.producer_id,
                    transaction_state=each.transaction_state,
                )
                for each in known
                if not request.producer_id_filters or each.producer_id in request.producer_id_filters
            ]
        )

    def describing(request: Any) -> Any:
        by_name = {each.transactional_id: each for each in known}
        states = [
            by_name.get(name, described.TransactionState(transactional_id=name, error_code=105))
            for name in request.transactional_ids
        ]
        return described.DescribeTransactionsResponse(transaction_states=states)

    answers: dict[int, Any] = {api.LIST_TRANSACTIONS: listing, api.DESCRIBE_TRANSACTIONS: describing}
    answers.update(more.get("answers", {}))
    cluster = ScriptedCluster({1: ScriptedNode(answers)}, {"orders": [1, 1]})
    return admin_over(AdminApiDriver(cluster, new_retry=RetryClock().retry))


def test_described_or_refused() -> None:
    found = knowing(transaction("t", "Ongoing", 7, 1, 0)).describe_transactions(["t", "u"])
    assert found["t"].partitions == (PLACE, TopicPartition("orders", 1))
    assert isinstance(found.errors["u"], TransactionalIdNotFoundError)
    assert "transactional id u: it does not exist" in str(found.errors["u"])


def test_a_state_that_the_broker_does_not_know() -> None:
    answer = ListTransactionsResponse(unknown_state_filters=["Dead"])
    transactions = knowing(answers={api.LIST_TRANSACTIONS: lambda request: answer})
    with pytest.raises(UserError, match="broker 1 knows no state Dead"):
        transactions.list_transactions(states=["Dead"])


@pytest.mark.parametrize(
    ("known", "cared_for"),
    [
        ([], {}),
        ([transaction("t", "Ongoing", 7, 0)], {OPEN: "t"}),
        ([transaction("t", "PrepareAbort", 7, 0)], {OPEN: "t"}),
        # The coordinator does not know that this partition takes part, or has ended its part long ago.
        ([transaction("t", "Ongoing", 7, 1)], {}),
        ([transaction("t", "CompleteCommit", 7)], {}),
        ([transaction("t", "Ongoing", 8, 0)], {}),
    ],
)
def test_what_hangs_is_what_no_coordinator_will_end(known: list[Any], cared_for: dict[ActiveProducer, str]) -> None:
    idle = replace(OPEN, producer_id=9, transaction_start=-1)
    assert knowing(*known).coordinated([OPEN, idle]) == cared_for


def test_fencing_waits_until_the_transaction_is_aborted() -> None:
    answers = [InitProducerIdResponse(error_code=51), InitProducerIdResponse(producer_id=7, producer_epoch=3)]
    asked: list[Any] = []

    def take_over(request: Any) -> InitProducerIdResponse:
        asked.append(request)
        return answers.pop(0)

    transactions = knowing(transaction(), answers={api.INIT_PRODUCER_ID: take_over})
    fenced = transactions.fence_producers(["t"], timeout_ms=60_000)
    assert fenced == {"t": FencedProducer(7, 3)}
    assert {(each.transactional_id, each.transaction_timeout_ms, each.producer_id) for each in asked} == {
        ("t", 60_000, -1)
    }


def producers(*answers: PartitionResponse) -> DescribeProducersResponse:
    return DescribeProducersResponse(topics=[TopicResponse(name="orders", partitions=list(answers))])


def test_producers_of_a_partition_whose_leader_moves() -> None:
    state = ProducerState(
        producer_id=7,
        producer_epoch=2,
        last_sequence=0,
        last_timestamp=1_000,
        coordinator_epoch=-1,
        current_txn_start_offset=40,
    )
    answers = [
        producers(PartitionResponse(partition_index=0, error_code=6)),
        producers(PartitionResponse(partition_index=0, active_producers=[state])),
    ]
    found = knowing(answers={api.DESCRIBE_PRODUCERS: lambda request: answers.pop(0)}).describe_producers([PLACE])
    assert found == {PLACE: (OPEN,)}
    lost = knowing(answers={api.DESCRIBE_PRODUCERS: lambda request: producers(PartitionResponse(error_code=6))})
    with pytest.raises(NotLeaderOrFollowerError, match="orders-0"):
        lost.describe_producers([PLACE])[PLACE]


@pytest.mark.parametrize(("error_code", "coordinator_epoch"), [(0, -1), (0, 5), (47, 0)])
def test_the_marker_that_was_missing(error_code: int, coordinator_epoch: int) -> None:
    asked: list[Any] = []

    def write(request: Any) -> WriteTxnMarkersResponse:
        asked.append(request)
        partition = WritableTxnMarkerPartitionResult(partition_index=0, error_code=error_code)
        topic = WritableTxnMarkerTopicResult(name="orders", partitions=[partition])
        return WriteTxnMarkersResponse(markers=[WritableTxnMarkerResult(producer_id=7, topics=[topic])])

    transactions = knowing(answers={api.WRITE_TXN_MARKERS: write})
    producer = replace(OPEN, coordinator_epoch=coordinator_epoch)
    if error_code:
        with pytest.raises(InvalidProducerEpochError, match=r"orders-0.*newer epoch"):
            transactions.abort_transaction(producer)
        return
    transactions.abort_transaction(producer)
    (marker,) = asked[0].markers
    assert (marker.producer_id, marker.producer_epoch, marker.transaction_result) == (7, 2, False)
    assert marker.coordinator_epoch == max(coordinator_epoch, 0)
    assert [(topic.name, topic.partition_indexes) for topic in marker.topics] == [("orders", [0])]
