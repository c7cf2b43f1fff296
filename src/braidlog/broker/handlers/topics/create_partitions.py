"""CreatePartitions (api 37): raise the number of partitions of topics; it never shrinks."""

from __future__ import annotations

from braidlog.broker.requests.time_slicing import TimeSlice
from braidlog.controller.controller import Controller
from braidlog.controller.requests import NewPartitions
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


class CreatePartitionsHandler:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def handle(self, request: CreatePartitionsRequest, exchange: Exchange) -> CreatePartitionsResponse:
        time_slice = TimeSlice()
        wanted: list[NewPartitions] = []
        for topic in request.topics:
            wanted.append(NewPartitions(topic.name, topic.count, _assignments(topic)))
            await time_slice.yield_if_over()
        answers: list[CreatePartitionsTopicResult] = []
        for result in await self._controller.create_partitions(wanted, request.validate_only):
            answers.append(
                CreatePartitionsTopicResult(
                    name=result.name,
                    error_code=NONE if result.error is None else result.error.code,
                    error_message=None if result.error is None else result.error.message,
                )
            )
            await time_slice.yield_if_over()
        return CreatePartitionsResponse(results=answers)

    @staticmethod
    def error_response(
        request: CreatePartitionsRequest, version: int, error: ProtocolError
    ) -> CreatePartitionsResponse:
        return CreatePartitionsResponse(
            results=[
                CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
                for topic in request.topics
            ]
        )


def _assignments(topic: CreatePartitionsTopic) -> tuple[tuple[int, ...], ...] | None:
    if topic.assignments is None:
        return None
    return tuple(tuple(assignment.broker_ids) for assignment in topic.assignments)
