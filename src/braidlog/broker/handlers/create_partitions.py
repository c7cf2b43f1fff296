"""CreatePartitions (api 37): raise the number of partitions of topics; it never shrinks."""

from __future__ import annotations

from braidlog.controller.loop import Controller
from braidlog.controller.requests import NewPartitions
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)


class CreatePartitionsHandler:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def handle(self, request: CreatePartitionsRequest, exchange: Exchange) -> CreatePartitionsResponse:
        wanted = [
            NewPartitions(
                topic.name,
                topic.count,
                None
                if topic.assignments is None
                else tuple(tuple(assignment.broker_ids) for assignment in topic.assignments),
            )
            for topic in request.topics
        ]
        results = await self._controller.create_partitions(wanted, request.validate_only)
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(
                    name=result.name,
                    error_code=NONE if result.error is None else result.error.code,
                    error_message=None if result.error is None else result.error.message,
                )
                for result in results
            ]
        )


def refuse(request: CreatePartitionsRequest, version: int, error: ProtocolError) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            for topic in request.topics
        ]
    )
