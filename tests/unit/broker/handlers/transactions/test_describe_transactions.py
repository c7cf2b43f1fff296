from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.handlers.transactions.describe_transactions import (
    DescribeProducersHandler,
    DescribeTransactionsHandler,
)
from braidlog.core.protocol_errors import (
    InvalidTopicError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    UnknownTopicOrPartitionError,
)
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from braidlog.wire.generated.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from braidlog.wire.generated.describe_transactions import DescribeTransactionsRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from support.asked_broker import AskedBroker, on_broker
from support.authorized_broker import RestrictedBroker, allow, allow_topic
from support.data_path import START_MS, DataPath, Peer, batch
from support.many_items import NAMES, answer_of, exchange, nobodys_coordinator


@pytest.fixture
def world(tmp_path: Path) -> Iterator[DataPath]:
    made = DataPath(tmp_path)
    yield made
    made.close()


def describe(world: DataPath, topic: str = "orders", index: int = 0) -> PartitionResponse:
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[index])])
    response = Peer(world).call(61, 0, request)
    assert isinstance(response, DescribeProducersResponse)
    return response.topics[0].partitions[0]


def test_open_and_ended_transactions(world: DataPath) -> None:
    world.produce(batch(b"x", producer_id=3, transactional=False), transactional_id=None)
    world.produce(batch(b"a", b"b", epoch=4))
    (plain, open_one) = describe(world).active_producers
    assert (plain.producer_id, plain.current_txn_start_offset) == (3, -1)
    assert (open_one.producer_id, open_one.producer_epoch, open_one.last_sequence) == (7, 4, 1)
    assert (open_one.coordinator_epoch, open_one.current_txn_start_offset) == (-1, 1)
    assert open_one.last_timestamp == START_MS
    world.clock.advance(1.0)
    world.end(7, 4, commits=True, coordinator_epoch=9)
    ended = describe(world).active_producers[1]
    assert (ended.coordinator_epoch, ended.current_txn_start_offset, ended.last_sequence) == (9, -1, 1)
    assert ended.last_timestamp == START_MS + 1000


def test_a_partition_without_producers(world: DataPath) -> None:
    answer = describe(world)
    assert (answer.error_code, answer.active_producers) == (0, [])


def test_what_is_not_here(world: DataPath) -> None:
    assert describe(world, index=9).error_code == UnknownTopicOrPartitionError.code
    gone = describe(world, topic="gone")
    assert (gone.error_code, gone.error_message) == (
        UnknownTopicOrPartitionError.code,
        "there is no partition 0 of 'gone'",
    )
    assert describe(world, topic="no/topic").error_code == InvalidTopicError.code
    world.partitions[1].leader = -1
    assert describe(world, index=1).error_code == NotLeaderOrFollowerError.code


def test_a_follower_knows_the_producers_as_well(world: DataPath) -> None:
    world.produce(batch(b"open"))
    world.partitions[0].update_leader_and_isr(2, 1, (1, 2), (1, 2))
    (producer,) = describe(world).active_producers
    assert (producer.producer_id, producer.current_txn_start_offset) == (7, 0)


def test_a_request_that_fails_as_a_whole_names_every_partition() -> None:
    request = DescribeProducersRequest(topics=[TopicRequest(name="orders", partition_indexes=[0, 4])])
    answers = DescribeProducersHandler.error_response(request, 0, NotLeaderOrFollowerError("no")).topics[0].partitions
    assert [(answer.partition_index, answer.error_code) for answer in answers] == [
        (0, NotLeaderOrFollowerError.code),
        (4, NotLeaderOrFollowerError.code),
    ]


def test_very_many_are_described_in_order() -> None:
    handler = DescribeTransactionsHandler(nobodys_coordinator(), Authorizer())
    answer = answer_of(handler.handle(DescribeTransactionsRequest(transactional_ids=NAMES), exchange(0)))
    assert [state.transactional_id for state in answer.transaction_states] == NAMES
    assert {state.error_code for state in answer.transaction_states} == {NotCoordinatorError.code}


@on_broker
async def test_transactions_are_shown_with_topics_that_may_be_described(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    admin = restricted.admin
    for name in ("hidden", "shown"):
        await admin.create(name)
    await admin.await_coordinator("tx", 1)
    begun = await admin.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4)
    added = await admin.ask(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id="tx",
            v3_and_below_producer_id=begun.producer_id,
            v3_and_below_producer_epoch=begun.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[0]) for name in ("hidden", "shown")],
        ),
        3,
    )
    assert {topic.results_by_partition[0].partition_error_code for topic in added.results_by_topic_v3_and_below} == {0}
    restricted.rules(
        allow(AclResourceType.TRANSACTIONAL_ID, "tx", AclOperation.DESCRIBE),
        allow_topic("shown", AclOperation.DESCRIBE),
    )
    answer = await restricted.ask("DescribeTransactions", 0, transactional_ids=["tx", "other"])
    assert answer == "[other TRANSACTIONAL_ID_AUTHORIZATION_FAILED, tx [shown]]"
    assert await restricted.ask("ListTransactions", 0) == "[tx]"
    restricted.rules()
    assert await restricted.ask("ListTransactions", 0) == "OK"
