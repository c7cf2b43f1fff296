"""AddOffsetsToTxn (api 25): the partition that keeps a group's offsets joins a transaction.

v2   PRODUCER_FENCED, before that INVALID_PRODUCER_EPOCH
"""

from __future__ import annotations

from typing import Final

from braidlog.broker.tickets import ExchangeTicket
from braidlog.broker.transactions import told_code
from braidlog.coordinator.group.shard import GroupShard
from braidlog.coordinator.runtime import Coordinator
from braidlog.coordinator.txn.shard import TxnShard
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FENCED_FROM: Final = 2


class AddOffsetsToTxnHandler:
    def __init__(self, transactions: Coordinator[TxnShard], groups: Coordinator[GroupShard]) -> None:
        self._transactions = transactions
        self._groups = groups

    def handle(self, request: AddOffsetsToTxnRequest, exchange: Exchange) -> None:
        ticket = ExchangeTicket(exchange, request, refuse)
        offsets = self._groups.partition_of(request.group_id)
        self._transactions.submit(
            request.transactional_id, ticket, lambda shard, now: shard.add_offsets(request, offsets, ticket, now)
        )


def refuse(request: AddOffsetsToTxnRequest, version: int, error: ProtocolError) -> AddOffsetsToTxnResponse:
    code = told_code(error, version, _FENCED_FROM)
    return AddOffsetsToTxnResponse(error_code=code)
