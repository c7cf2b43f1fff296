"""ListTransactions (api 66): the transactional ids of this broker.

v0   by state and producer id        v1   by how long they have been open        v2   by a pattern for the id
"""

from __future__ import annotations

import re
from collections.abc import Callable

from braidlog.coordinator.runtime import Coordinator
from braidlog.coordinator.txn.shard import TxnShard
from braidlog.core.protocol_errors import CoordinatorLoadInProgressError, InvalidRequestError, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.list_transactions import ListTransactionsRequest, ListTransactionsResponse


class ListTransactionsHandler:
    def __init__(self, transactions: Coordinator[TxnShard]) -> None:
        self._transactions = transactions

    async def handle(self, request: ListTransactionsRequest, exchange: Exchange) -> ListTransactionsResponse:
        if self._transactions.loading_partitions():
            raise CoordinatorLoadInProgressError("transactions are being loaded; try again")
        matches = _matcher(request.transactional_id_pattern)
        answer = ListTransactionsResponse()
        unknown: list[str] = []
        for partition in self._transactions.active_partitions():
            part = await self._transactions.ask_partition(
                partition, lambda shard, ticket, now: shard.list_transactions(request, matches, ticket, now)
            )
            assert isinstance(part, ListTransactionsResponse)
            answer.transaction_states += part.transaction_states
            unknown = part.unknown_state_filters
        answer.unknown_state_filters = unknown
        return answer


def _matcher(pattern: str | None) -> Callable[[str], bool] | None:
    if not pattern:
        return None
    try:
        compiled = re.compile(pattern)
    except re.error as problem:
        raise InvalidRequestError(f"{pattern!r} is no regular expression: {problem}") from problem
    return lambda transactional_id: compiled.fullmatch(transactional_id) is not None


def refuse(request: ListTransactionsRequest, version: int, error: ProtocolError) -> ListTransactionsResponse:
    return ListTransactionsResponse(error_code=error.code)
