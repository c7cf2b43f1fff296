from __future__ import annotations

import pytest

from braidlog.core.protocol_errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    ProducerFencedError,
    TransactionAbortableError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from support.txn_shard import FRESH_ID, P0, P1, World, codes, refusal


@pytest.fixture
def world() -> World:
    return World()


def test_partitions_join_once(world: World) -> None:
    producer = world.started()
    responder = world.add(producer, P0, P1)
    assert [t.name for t in responder.response.topic_results] == ["t"]
    results = responder.response.topic_results[0].results_by_partition
    assert [(r.partition_index, r.partition_error_code) for r in results] == [(0, 0), (1, 0)]
    written = len(world.log)
    assert refusal(world.add(producer, P1)) is None
    assert len(world.log) == written
    world.add(producer, TopicPartition("u", 3))
    assert world.transaction.partitions == frozenset([P0, P1, TopicPartition("u", 3)])


def test_who_may_not_add_partitions(world: World) -> None:
    assert refusal(world.add((1, 0))) is InvalidProducerIdMappingError
    producer = world.started()
    assert refusal(world.add((999, 0))) is InvalidProducerIdMappingError
    assert refusal(world.add((FRESH_ID, 1))) is ProducerFencedError
    world.add(producer)
    world.end(producer)
    assert refusal(world.add(producer)) is ConcurrentTransactionsError


def test_the_offsets_of_a_group_join_by_their_partition(world: World) -> None:
    producer = world.started()
    request = AddOffsetsToTxnRequest(transactional_id="tx", producer_id=producer[0], group_id="g")
    responder = world.submit(lambda shard, responder, now: shard.add_offsets(request, 17, responder, now))
    assert responder.error_code == 0
    assert world.transaction.partitions == frozenset([TopicPartition("__consumer_offsets", 17)])


def test_verification_tells_what_is_in_the_transaction(world: World) -> None:
    producer = world.started()
    assert codes(world.verify(producer, P0)) == [TransactionAbortableError.code]
    world.add(producer, P0)
    assert codes(world.verify(producer, P0, P1)) == [0, TransactionAbortableError.code]
    assert refusal(world.verify((FRESH_ID, 5), P0)) is ProducerFencedError
    assert refusal(world.verify((7, 0), P0)) is InvalidProducerIdMappingError
    world.end(producer)
    assert refusal(world.verify(producer, P0)) is ConcurrentTransactionsError
    world.confirm(world.sent())
    assert codes(world.verify(producer, P0)) == [TransactionAbortableError.code]
