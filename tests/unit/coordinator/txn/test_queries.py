from __future__ import annotations

from typing import Any

import pytest

from braidlog.coordinator.effects import Effects, Moment, Responder
from braidlog.coordinator.txn.shard import TransactionCoordinatorShard
from braidlog.core.protocol_errors import (
    InvalidRequestError,
    TransactionalIdNotFoundError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.generated.list_transactions import ListTransactionsRequest
from support.responders import RecordingResponder
from support.txn_shard import FRESH_ID, P0, P1, World, refusal


@pytest.fixture
def world() -> World:
    return World()


def test_describe(world: World) -> None:
    def describe(name: str) -> RecordingResponder:
        return world.submit(lambda shard, responder, now: shard.describe(name, responder, now))

    assert refusal(describe("tx")) is TransactionalIdNotFoundError
    assert refusal(describe("")) is InvalidRequestError
    world.add(world.started(), TopicPartition("u", 1), P1, P0)
    state = describe("tx").response
    assert (state.transaction_state, state.producer_id, state.producer_epoch) == ("Ongoing", FRESH_ID, 0)
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [("t", [0, 1]), ("u", [1])]
    assert (state.transaction_timeout_ms, state.transaction_start_time_ms) == (60_000, world.now.wall_ms)


def test_list(world: World) -> None:
    def listed(**filters: Any) -> tuple[list[str], list[str]]:
        request = ListTransactionsRequest(**filters)

        def operation(shard: TransactionCoordinatorShard, responder: Responder, now: Moment) -> Effects:
            return shard.list_transactions(request, None, responder, now)

        response = world.submit(operation).response
        return [state.transactional_id for state in response.transaction_states], response.unknown_state_filters

    world.init(name="idle")
    world.add(world.started())
    world.advance(10)
    assert listed() == (["idle", "tx"], [])
    assert listed(state_filters=["Ongoing"]) == (["tx"], [])
    assert listed(state_filters=["Ongoing", "Empty", "Gone"]) == (["idle", "tx"], ["Gone"])
    assert listed(state_filters=["Gone"]) == ([], ["Gone"])
    assert listed(producer_id_filters=[FRESH_ID]) == (["idle"], [])
    assert listed(duration_filter=9_999) == (["idle", "tx"], [])
    assert listed(duration_filter=10_000) == (["idle"], [])
