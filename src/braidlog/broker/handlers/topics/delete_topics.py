"""DeleteTopics (api 20): delete topics by name or, from v6 on, by id."""

from __future__ import annotations

from braidlog.broker.requests.time_slicing import TimeSlice
from braidlog.controller.controller import Controller
from braidlog.controller.requests import TopicRef
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse


class DeleteTopicsHandler:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def handle(self, request: DeleteTopicsRequest, exchange: Exchange) -> DeleteTopicsResponse:
        results = await self._controller.delete_topics(_wanted(request, exchange.version))
        time_slice = TimeSlice()
        answers: list[DeletableTopicResult] = []
        for result in results:
            answers.append(
                DeletableTopicResult(
                    name=result.name,
                    topic_id=result.topic_id,
                    error_code=NONE if result.error is None else result.error.code,
                    error_message=None if result.error is None else result.error.message,
                )
            )
            await time_slice.yield_if_over()
        return DeleteTopicsResponse(responses=answers)

    @staticmethod
    def error_response(request: DeleteTopicsRequest, version: int, error: ProtocolError) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(
                    name=topic.name, topic_id=topic.topic_id, error_code=error.code, error_message=error.message
                )
                for topic in _wanted(request, version)
            ]
        )


def _wanted(request: DeleteTopicsRequest, version: int) -> list[TopicRef]:
    if version >= 6:
        return [TopicRef(topic.name, topic.topic_id) for topic in request.topics]
    return [TopicRef(name) for name in request.topic_names]
