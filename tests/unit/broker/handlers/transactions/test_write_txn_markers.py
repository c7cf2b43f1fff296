from __future__ import annotations

from typing import Any

from braidlog.broker.handlers.transactions.write_txn_markers import WriteTxnMarkersHandler, targets_of
from braidlog.core.protocol_errors import InvalidRequestError, UnknownServerError, UnknownTopicOrPartitionError
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from support.asked_broker import AskedBroker, on_broker


def marker(producer_id: int, epoch: int = 0, **topics: list[int]) -> WritableTxnMarker:
    named = [WritableTxnMarkerTopic(name=name, partition_indexes=each) for name, each in topics.items()]
    return WritableTxnMarker(producer_id=producer_id, producer_epoch=epoch, transaction_result=False, topics=named)


def codes(answer: Any) -> dict[tuple[int, str, int], int]:
    return {
        (each.producer_id, topic.name, partition.partition_index): partition.error_code
        for each in answer.markers
        for topic in each.topics
        for partition in topic.partitions
    }


@on_broker
async def test_each_partition_is_answered_by_itself(broker: AskedBroker) -> None:
    await broker.create("t", 2)
    request = WriteTxnMarkersRequest(markers=[marker(7, t=[0, 1, 9]), marker(8, gone=[0]), marker(-1, t=[0])])
    assert codes(await broker.ask(request, 1)) == {
        (7, "t", 0): 0,
        (7, "t", 1): 0,
        (7, "t", 9): UnknownTopicOrPartitionError.code,
        (8, "gone", 0): UnknownTopicOrPartitionError.code,
        (-1, "t", 0): InvalidRequestError.code,
    }
    assert broker.parts.registry.require("t", 0).require_log().log_end_offset == 1


@on_broker
async def test_nothing_to_do_is_answered_at_once(broker: AskedBroker) -> None:
    assert (await broker.ask(WriteTxnMarkersRequest(markers=[]), 1)).markers == []


def test_a_partition_that_is_named_twice_is_one() -> None:
    assert targets_of(marker(7, t=[1, 0, 1])) == [TopicPartition("t", 1), TopicPartition("t", 0)]


def test_a_failure_is_told_for_each_partition() -> None:
    request = WriteTxnMarkersRequest(markers=[marker(7, t=[0])])
    answer = WriteTxnMarkersHandler.error_response(request, 1, UnknownServerError())
    assert codes(answer) == {(7, "t", 0): UnknownServerError.code}
