"""ListTransactions (api 66): the transactional ids of this broker.

v0   by state and producer id        v1   by how long they have been open        v2   by a pattern for the id
"""

from __future__ import annotations

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.coordinator.group.consumer.pattern_syntax import NAME_CHARACTERS
from braidlog.coordinator.group.consumer.patterns import Pattern
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.txn.shard import TransactionCoordinatorShard
from braidlog.core.protocol_errors import CoordinatorLoadInProgressError, ProtocolError
from braidlog.core.time_slice import TimeSlice
from braidlog.net.exchange import Exchange
from braidlog.security.acls import CLUSTER_RESOURCE, AclOperation, AclResourceType
from braidlog.wire.generated.list_transactions import ListTransactionsRequest, ListTransactionsResponse


class ListTransactionsHandler:
    def __init__(self, transactions: CoordinatorRuntime[TransactionCoordinatorShard], authorizer: Authorizer) -> None:
        self._transactions = transactions
        self._authorizer = authorizer

    async def handle(self, request: ListTransactionsRequest, exchange: Exchange) -> ListTransactionsResponse:
        if self._transactions.loading_partitions():
            raise CoordinatorLoadInProgressError("transactions are being loaded; try again")
        pattern = request.transactional_id_pattern
        matches = _TransactionalIdPattern(pattern).match if pattern else None
        # Brokers hold the records of all of them.
        sees_all = self._authorizer.authorize(
            exchange, AclOperation.CLUSTER_ACTION, *CLUSTER_RESOURCE, log_if_denied=False
        )
        answer = ListTransactionsResponse()
        unknown: list[str] = []
        time_slice = TimeSlice()
        for partition in self._transactions.active_partitions():
            await time_slice.yield_if_over()
            part = await self._transactions.ask(
                partition, lambda shard, responder, now: shard.list_transactions(request, matches, responder, now)
            )
            assert isinstance(part, ListTransactionsResponse)
            answer.transaction_states += [
                state
                for state in part.transaction_states
                if sees_all
                or self._authorizer.authorize(
                    exchange,
                    AclOperation.DESCRIBE,
                    AclResourceType.TRANSACTIONAL_ID,
                    state.transactional_id,
                    log_if_denied=False,
                )
            ]
            unknown = part.unknown_state_filters
        answer.unknown_state_filters = unknown
        return answer

    @staticmethod
    def error_response(
        request: ListTransactionsRequest, version: int, error: ProtocolError
    ) -> ListTransactionsResponse:
        return ListTransactionsResponse(error_code=error.code)


class _TransactionalIdPattern:
    """A pattern for transactional ids, which unlike names of topics may have any characters."""

    def __init__(self, text: str) -> None:
        self._alphabet = NAME_CHARACTERS
        self._pattern = Pattern(text)

    def match(self, transactional_id: str) -> bool:
        if not self._alphabet.issuperset(transactional_id):
            self._alphabet |= set(transactional_id)
            self._pattern = Pattern(self._pattern.text, self._alphabet)
        return self._pattern.matches(transactional_id)
