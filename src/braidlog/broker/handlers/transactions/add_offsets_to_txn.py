"""AddOffsetsToTxn (api 25): the partition that keeps a group's offsets joins a transaction.

v2   PRODUCER_FENCED, before that INVALID_PRODUCER_EPOCH
"""

from __future__ import annotations

from typing import Final

from braidlog.broker.coordinators.transaction_markers import error_code_for_version
from braidlog.coordinator.group.shard import GroupCoordinatorShard
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.txn.shard import TransactionCoordinatorShard
from braidlog.core.protocol_errors import ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

_FENCED_FROM: Final = 2


class AddOffsetsToTxnHandler:
    def __init__(
        self,
        transactions: CoordinatorRuntime[TransactionCoordinatorShard],
        groups: CoordinatorRuntime[GroupCoordinatorShard],
    ) -> None:
        self._transactions = transactions
        self._groups = groups

    def handle(self, request: AddOffsetsToTxnRequest, exchange: Exchange) -> None:
        offsets = self._groups.partition_of(request.group_id)
        self._transactions.submit(
            request.transactional_id, exchange, lambda shard, now: shard.add_offsets(request, offsets, exchange, now)
        )

    @staticmethod
    def error_response(request: AddOffsetsToTxnRequest, version: int, error: ProtocolError) -> AddOffsetsToTxnResponse:
        code = error_code_for_version(error, version, _FENCED_FROM)
        return AddOffsetsToTxnResponse(error_code=code)
