from __future__ import annotations

from typing import Any

import pytest

from braidlog.broker.handlers.transactions.add_partitions_to_txn import AddPartitionsToTxnHandler, transactions_of
from braidlog.core.protocol_errors import (
    InvalidProducerEpochError,
    OperationNotAttemptedError,
    ProducerFencedError,
    TopicAuthorizationFailedError,
    UnknownTopicOrPartitionError,
)
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from support.asked_broker import AskedBroker, on_broker
from support.authorization_matrix import from_plain
from support.authorized_broker import RestrictedBroker, allow, allow_topic


def old_form(producer_id: int, epoch: int, **topics: list[int]) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="tx",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
    )


def codes(topics: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_error_code
        for topic in topics
        for each in topic.results_by_partition
    }


async def begun(broker: AskedBroker) -> tuple[int, int]:
    await broker.create("t", 2)
    await broker.await_coordinator("tx", 1)
    answer = await broker.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4)
    return answer.producer_id, answer.producer_epoch


@on_broker
async def test_partitions_join_and_are_found_in_the_transaction(broker: AskedBroker) -> None:
    producer_id, epoch = await begun(broker)
    answer = await broker.ask(old_form(producer_id, epoch, t=[0]), 3)
    assert codes(answer.results_by_topic_v3_and_below) == {("t", 0): 0}
    asked = AddPartitionsToTxnTransaction(
        transactional_id="tx",
        producer_id=producer_id,
        producer_epoch=epoch,
        verify_only=True,
        topics=[AddPartitionsToTxnTopic(name="t", partitions=[0, 1])],
    )
    (result,) = (await broker.ask(AddPartitionsToTxnRequest(transactions=[asked]), 4)).results_by_transaction
    found = codes(result.topic_results)
    assert result.transactional_id == "tx"
    assert found["t", 0] == 0
    assert found["t", 1] != 0


@on_broker
async def test_one_partition_that_does_not_exist_keeps_all_others_out(broker: AskedBroker) -> None:
    producer_id, epoch = await begun(broker)
    answer = await broker.ask(old_form(producer_id, epoch, t=[0, 9], gone=[0]), 3)
    assert codes(answer.results_by_topic_v3_and_below) == {
        ("t", 0): OperationNotAttemptedError.code,
        ("t", 9): UnknownTopicOrPartitionError.code,
        ("gone", 0): UnknownTopicOrPartitionError.code,
    }


@on_broker
async def test_a_fenced_producer_hears_it_in_words_of_its_version(broker: AskedBroker) -> None:
    producer_id, epoch = await begun(broker)
    for version, error in ((1, InvalidProducerEpochError), (3, ProducerFencedError)):
        answer = await broker.ask(old_form(producer_id, epoch + 1, t=[0]), version)
        assert codes(answer.results_by_topic_v3_and_below) == {("t", 0): error.code}


@pytest.mark.parametrize("version", [3, 4])
def test_a_failure_in_the_form_of_each_version(version: int) -> None:
    request = old_form(1, 0, t=[0])
    request.transactions = transactions_of(request, 3)
    answer = AddPartitionsToTxnHandler.error_response(request, version, ProducerFencedError())
    if version >= 4:
        assert (answer.error_code, answer.results_by_transaction) == (ProducerFencedError.code, [])
    else:
        assert codes(answer.results_by_topic_v3_and_below) == {("t", 0): ProducerFencedError.code}
        assert answer.error_code == 0


@on_broker
async def test_one_topic_that_may_not_be_written_to_keeps_the_others_out(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    admin = restricted.admin
    await admin.create("mine")
    await admin.create("other")
    await admin.await_coordinator("tx", 1)
    await admin.await_coordinator("g", 0)
    restricted.rules(
        allow(AclResourceType.TRANSACTIONAL_ID, "tx", AclOperation.WRITE), allow_topic("mine", AclOperation.WRITE),
        allow_topic("__consumer_offsets", AclOperation.WRITE),
    )  # fmt: skip
    topics = [{"name": name, "partitions": [0]} for name in ("mine", "other", "__consumer_offsets")]
    request = {
        "v3_and_below_transactional_id": "tx",
        "v3_and_below_producer_id": 1,
        "v3_and_below_topics": topics,
    }
    answer = await restricted.alice.ask(from_plain(AddPartitionsToTxnRequest, request), 3)
    assert codes(answer.results_by_topic_v3_and_below) == {
        ("mine", 0): OperationNotAttemptedError.code,
        ("other", 0): TopicAuthorizationFailedError.code,
        ("__consumer_offsets", 0): TopicAuthorizationFailedError.code,
    }
