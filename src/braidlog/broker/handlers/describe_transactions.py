"""DescribeTransactions (api 65): the state of transactional ids, each answered for itself."""

from __future__ import annotations

from braidlog.broker.slices import Pace
from braidlog.coordinator.runtime import Coordinator
from braidlog.coordinator.txn.shard import TxnShard
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


class DescribeTransactionsHandler:
    def __init__(self, transactions: Coordinator[TxnShard]) -> None:
        self._transactions = transactions

    async def handle(self, request: DescribeTransactionsRequest, exchange: Exchange) -> DescribeTransactionsResponse:
        pace = Pace()
        states: list[TransactionState] = []
        for transactional_id in request.transactional_ids:
            states.append(await self._describe(transactional_id))
            await pace.rest_if_due()
        return DescribeTransactionsResponse(transaction_states=states)

    async def _describe(self, transactional_id: str) -> TransactionState:
        try:
            state = await self._transactions.ask(
                transactional_id, lambda shard, ticket, now: shard.describe(transactional_id, ticket, now)
            )
        except ProtocolError as error:
            return TransactionState(transactional_id=transactional_id, error_code=error.code)
        assert isinstance(state, TransactionState)
        return state


def refuse(request: DescribeTransactionsRequest, version: int, error: ProtocolError) -> DescribeTransactionsResponse:
    states = [
        TransactionState(transactional_id=transactional_id, error_code=error.code)
        for transactional_id in request.transactional_ids
    ]
    return DescribeTransactionsResponse(transaction_states=states)
