"""EndTxn (api 26): commit or abort.

v2   PRODUCER_FENCED, before that INVALID_PRODUCER_EPOCH
v5   each end moves the epoch, and tells the producer its next id and epoch (KIP-890)
"""

from __future__ import annotations

from typing import Final

from braidlog.broker.coordinators.transaction_markers import error_code_for_version
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.txn.shard import TransactionCoordinatorShard
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.end_txn import EndTxnRequest, EndTxnResponse

_FENCED_FROM: Final = 2
_MOVES_EPOCH_FROM: Final = 5


class EndTxnHandler:
    def __init__(self, transactions: CoordinatorRuntime[TransactionCoordinatorShard]) -> None:
        self._transactions = transactions

    def handle(self, request: EndTxnRequest, exchange: Exchange) -> None:
        bumps_epoch = exchange.version >= _MOVES_EPOCH_FROM
        self._transactions.submit(
            request.transactional_id, exchange, lambda shard, now: shard.end_txn(request, bumps_epoch, exchange, now)
        )

    @staticmethod
    def error_response(request: EndTxnRequest, version: int, error: ProtocolError) -> EndTxnResponse:
        code = error_code_for_version(error, version, _FENCED_FROM)
        return EndTxnResponse(error_code=code)
