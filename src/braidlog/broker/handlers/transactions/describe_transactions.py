"""DescribeTransactions (api 65): the state of transactional ids, each answered for itself."""

from __future__ import annotations

from braidlog.broker.requests.time_slicing import TimeSlice
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.txn.shard import TransactionCoordinatorShard
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


class DescribeTransactionsHandler:
    def __init__(self, transactions: CoordinatorRuntime[TransactionCoordinatorShard]) -> None:
        self._transactions = transactions

    async def handle(self, request: DescribeTransactionsRequest, exchange: Exchange) -> DescribeTransactionsResponse:
        time_slice = TimeSlice()
        states: list[TransactionState] = []
        for transactional_id in request.transactional_ids:
            states.append(await self._describe(transactional_id))
            await time_slice.yield_if_over()
        return DescribeTransactionsResponse(transaction_states=states)

    async def _describe(self, transactional_id: str) -> TransactionState:
        try:
            state = await self._transactions.ask(
                transactional_id, lambda shard, responder, now: shard.describe(transactional_id, responder, now)
            )
        except ProtocolError as error:
            return TransactionState(transactional_id=transactional_id, error_code=error.code)
        assert isinstance(state, TransactionState)
        return state

    @staticmethod
    def error_response(
        request: DescribeTransactionsRequest, version: int, error: ProtocolError
    ) -> DescribeTransactionsResponse:
        states = [
            TransactionState(transactional_id=transactional_id, error_code=error.code)
            for transactional_id in request.transactional_ids
        ]
        return DescribeTransactionsResponse(transaction_states=states)
