from __future__ import annotations

import pytest

from braidlog.broker.handlers.transactions.producer_transactions import (
    AddOffsetsToTxnHandler,
    EndTxnHandler,
    InitProducerIdHandler,
)
from braidlog.core.protocol_errors import InvalidProducerEpochError, InvalidRequestError, ProducerFencedError
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest
from braidlog.wire.generated.end_txn import EndTxnRequest
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from support.asked_broker import AskedBroker, on_broker
from support.authorized_broker import RestrictedBroker, allow, allow_cluster, allow_topic, deny


@on_broker
async def test_idempotent_producers_get_an_id_each(broker: AskedBroker) -> None:
    answers = [await broker.ask(InitProducerIdRequest(transactional_id=None), 4) for _ in range(3)]
    assert {each.error_code for each in answers} == {0}
    assert {each.producer_epoch for each in answers} == {0}
    assert len({each.producer_id for each in answers}) == 3


@on_broker
async def test_an_id_without_an_epoch_is_refused(broker: AskedBroker) -> None:
    answer = await broker.ask(InitProducerIdRequest(transactional_id=None, producer_id=5, producer_epoch=-1), 4)
    assert (answer.error_code, answer.producer_id) == (InvalidRequestError.code, -1)


@on_broker
async def test_a_transaction_takes_a_groups_offsets_and_ends(broker: AskedBroker) -> None:
    await broker.await_coordinator("tx", 1)
    await broker.await_coordinator("g")
    begun = await broker.ask(InitProducerIdRequest(transactional_id="tx", transaction_timeout_ms=60_000), 4)
    who = {"transactional_id": "tx", "producer_id": begun.producer_id, "producer_epoch": begun.producer_epoch}
    assert (await broker.ask(AddOffsetsToTxnRequest(group_id="g", **who), 3)).error_code == 0
    assert (await broker.ask(EndTxnRequest(committed=True, **who), 3)).error_code == 0
    who["producer_epoch"] += 1
    assert (await broker.ask(EndTxnRequest(committed=True, **who), 3)).error_code == ProducerFencedError.code
    assert (await broker.ask(EndTxnRequest(committed=True, **who), 1)).error_code == InvalidProducerEpochError.code


@pytest.mark.parametrize(("init", "other"), [(3, 1), (4, 2)])
def test_older_versions_do_not_know_of_fencing(init: int, other: int) -> None:
    code = ProducerFencedError.code if init >= 4 else InvalidProducerEpochError.code
    error = ProducerFencedError()
    assert InitProducerIdHandler.error_response(InitProducerIdRequest(), init, error).error_code == code
    assert AddOffsetsToTxnHandler.error_response(AddOffsetsToTxnRequest(), other, error).error_code == code
    assert EndTxnHandler.error_response(EndTxnRequest(), other, error).error_code == code


@on_broker
async def test_idempotence_takes_a_right_to_write_somewhere(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    plain = {"transactional_id": None, "transaction_timeout_ms": 1000}
    writes = AclOperation.WRITE
    for rules, answer in (
        ([], "CLUSTER_AUTHORIZATION_FAILED"),
        ([allow_cluster(AclOperation.IDEMPOTENT_WRITE)], "OK"),
        ([allow_topic("some", writes)], "OK"),
        ([allow_topic("some", writes), deny(AclResourceType.TOPIC, "other", writes)], "OK"),
        ([allow_topic("some", writes), deny(AclResourceType.TOPIC, "*", writes)], "CLUSTER_AUTHORIZATION_FAILED"),
        ([allow_topic("some", AclOperation.READ)], "CLUSTER_AUTHORIZATION_FAILED"),
        ([allow(AclResourceType.GROUP, "some", writes)], "CLUSTER_AUTHORIZATION_FAILED"),
    ):
        restricted.rules(*rules)
        assert await restricted.ask("InitProducerId", 4, **plain) == answer, rules
