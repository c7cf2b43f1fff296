"""InitProducerId (api 22): a producer's id and epoch; those of a transactional id come from its coordinator.

v3   a producer that recovers says which id and epoch it had (KIP-360)
v4   PRODUCER_FENCED, before that INVALID_PRODUCER_EPOCH                v6   fields of KIP-939, which is not served
"""

from __future__ import annotations

from typing import Final

from braidlog.broker.coordinators.transaction_markers import error_code_for_version
from braidlog.cluster.producer_id_manager import ProducerIdManager
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.coordinator.txn.shard import TransactionCoordinatorShard
from braidlog.core.protocol_errors import InvalidRequestError, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from braidlog.wire.message import Message

_FENCED_FROM: Final = 4


class InitProducerIdHandler:
    def __init__(
        self, producer_ids: ProducerIdManager, transactions: CoordinatorRuntime[TransactionCoordinatorShard]
    ) -> None:
        self._producer_ids = producer_ids
        self._transactions = transactions

    async def handle(self, request: InitProducerIdRequest, exchange: Exchange) -> Message:
        transactional_id = request.transactional_id
        if (request.producer_id == -1) != (request.producer_epoch == -1):
            raise InvalidRequestError("a producer id goes with an epoch")
        if transactional_id is None:
            return InitProducerIdResponse(producer_id=await self._producer_ids.next_id(), producer_epoch=0)
        # The coordinator may need a fresh id, and cannot wait for one.
        await self._producer_ids.reserve()
        return await self._transactions.ask(
            transactional_id, lambda shard, responder, now: shard.init_producer_id(request, responder, now)
        )

    @staticmethod
    def error_response(request: InitProducerIdRequest, version: int, error: ProtocolError) -> InitProducerIdResponse:
        code = error_code_for_version(error, version, _FENCED_FROM)
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
