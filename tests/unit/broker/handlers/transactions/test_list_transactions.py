from __future__ import annotations

from braidlog.broker.handlers.transactions.list_transactions import ListTransactionsHandler
from braidlog.core.protocol_errors import CoordinatorLoadInProgressError, InvalidRegularExpressionError
from braidlog.security.acls import AclOperation, AclResourceType
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest
from braidlog.wire.generated.list_transactions import ListTransactionsRequest
from support.asked_broker import AskedBroker, on_broker
from support.authorized_broker import RestrictedBroker, allow


@on_broker
async def test_ids_are_listed_by_state_producer_and_pattern(broker: AskedBroker) -> None:
    producers = {}
    for name in ("orders-1", "orders-2", "ümlaut"):
        await broker.await_coordinator(name, 1)
        begun = await broker.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000), 4)
        producers[name] = begun.producer_id

    async def listed(version: int = 2, **wanted: object) -> list[str]:
        answer = await broker.ask(ListTransactionsRequest(**wanted), version)  # type: ignore[arg-type]
        return sorted(each.transactional_id for each in answer.transaction_states)

    assert await listed() == ["orders-1", "orders-2", "ümlaut"]
    assert await listed(producer_id_filters=[producers["orders-2"]]) == ["orders-2"]
    assert await listed(state_filters=["Ongoing"]) == []
    assert await listed(transactional_id_pattern="orders-.*") == ["orders-1", "orders-2"]
    assert await listed(transactional_id_pattern="ü.*") == ["ümlaut"]


@on_broker
async def test_what_is_not_understood_is_said(broker: AskedBroker) -> None:
    await broker.await_coordinator("tx", 1)
    answer = await broker.ask(ListTransactionsRequest(state_filters=["Ongoing", "Confused"]), 1)
    assert answer.unknown_state_filters == ["Confused"]
    answer = await broker.ask(ListTransactionsRequest(transactional_id_pattern="("), 2)
    assert answer.error_code == InvalidRegularExpressionError.code


def test_a_failure_has_its_code() -> None:
    error = CoordinatorLoadInProgressError()
    assert ListTransactionsHandler.error_response(ListTransactionsRequest(), 0, error).error_code == error.code


@on_broker
async def test_only_ids_that_may_be_described_are_listed(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    await restricted.admin.await_coordinator("mine", 1)
    for name in ("mine", "other"):
        begun = await restricted.admin.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000), 4)
        assert begun.error_code == 0
    restricted.rules(allow(AclResourceType.TRANSACTIONAL_ID, "mine", AclOperation.WRITE))
    assert await restricted.ask("ListTransactions", 0) == "[mine]"
