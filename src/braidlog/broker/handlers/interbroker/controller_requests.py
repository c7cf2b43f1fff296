"""ControlledShutdown (api 7) and AllocateProducerIds (67): what brokers ask of the controller.

Off the controller both are answered NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from braidlog.cluster.records import ProducerIdBlock
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.core.types import BrokerId, TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from braidlog.wire.generated.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


class ShutdownController(Protocol):
    async def controlled_shutdown(self, broker_id: BrokerId, broker_epoch: int) -> Sequence[TopicPartition]:
        """Move the leaders of a broker that stops; returns those that could not be moved."""
        ...


class ProducerIdController(Protocol):
    async def allocate_producer_ids(self, broker_id: BrokerId, broker_epoch: int) -> ProducerIdBlock: ...


class ControlledShutdownHandler:
    def __init__(self, controller: ShutdownController) -> None:
        self._controller = controller

    async def handle(self, request: ControlledShutdownRequest, exchange: Exchange) -> ControlledShutdownResponse:
        left = await self._controller.controlled_shutdown(BrokerId(request.broker_id), request.broker_epoch)
        return ControlledShutdownResponse(
            error_code=NONE,
            remaining_partitions=[
                RemainingPartition(topic_name=topic, partition_index=partition) for topic, partition in left
            ],
        )

    @staticmethod
    def error_response(
        request: ControlledShutdownRequest, version: int, error: ProtocolError
    ) -> ControlledShutdownResponse:
        return ControlledShutdownResponse(error_code=error.code)


class AllocateProducerIdsHandler:
    def __init__(self, controller: ProducerIdController) -> None:
        self._controller = controller

    async def handle(self, request: AllocateProducerIdsRequest, exchange: Exchange) -> AllocateProducerIdsResponse:
        block = await self._controller.allocate_producer_ids(BrokerId(request.broker_id), request.broker_epoch)
        return AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1)

    @staticmethod
    def error_response(
        request: AllocateProducerIdsRequest, version: int, error: ProtocolError
    ) -> AllocateProducerIdsResponse:
        return AllocateProducerIdsResponse(error_code=error.code)
