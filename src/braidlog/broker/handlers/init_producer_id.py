"""InitProducerId (api 22): a fresh id for an idempotent producer; transactional ids belong to their coordinator."""

from __future__ import annotations

from braidlog.cluster.producer_ids import ProducerIds
from braidlog.core.protocol_errors import CoordinatorNotAvailableError, InvalidRequestError, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class InitProducerIdHandler:
    def __init__(self, producer_ids: ProducerIds) -> None:
        self._producer_ids = producer_ids

    async def handle(self, request: InitProducerIdRequest, exchange: Exchange) -> InitProducerIdResponse:
        if request.transactional_id == "":
            raise InvalidRequestError("a transactional id must not be empty")
        if request.transactional_id is not None:
            raise CoordinatorNotAvailableError("transactions are not served yet")
        return InitProducerIdResponse(producer_id=await self._producer_ids.next_id(), producer_epoch=0)


def refuse(request: InitProducerIdRequest, version: int, error: ProtocolError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_id=-1, producer_epoch=-1)
