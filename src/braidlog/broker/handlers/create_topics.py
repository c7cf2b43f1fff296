"""CreateTopics (api 19): create topics, or (v1+, validate_only) say what creating them would answer.

v4   -1 partitions or replicas mean the broker's defaults      v5   the effective settings are returned
v7   topic ids
"""

from __future__ import annotations

from braidlog.broker.live_settings import LiveSettings
from braidlog.config.describe import describe_topic, topic_sources
from braidlog.controller.loop import Controller
from braidlog.controller.requests import NewTopic, NewTopicResult
from braidlog.core.protocol_errors import InvalidRequestError, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)


class CreateTopicsHandler:
    def __init__(self, controller: Controller, settings: LiveSettings) -> None:
        self._controller = controller
        self._settings = settings

    async def handle(self, request: CreateTopicsRequest, exchange: Exchange) -> CreateTopicsResponse:
        names = [topic.name for topic in request.topics]
        repeated = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else set()
        wanted = [topic for topic in request.topics if topic.name not in repeated]
        results = await self._controller.create_topics([_new_topic(topic) for topic in wanted], request.validate_only)
        answers = [self._result(result, exchange.version) for result in results]
        for name in sorted(repeated):
            error = InvalidRequestError("the topic is named twice in one request")
            answers.append(_failed(name, error))
        return CreateTopicsResponse(topics=answers)

    def _result(self, result: NewTopicResult, version: int) -> CreatableTopicResult:
        if result.error is not None:
            return _failed(result.name, result.error)
        answer = CreatableTopicResult(
            name=result.name,
            topic_id=result.topic_id,
            error_message=None,
            num_partitions=result.partitions,
            replication_factor=result.replication_factor,
        )
        if version >= 5:
            sources = topic_sources(result.configs, self._settings.current)
            answer.configs = [
                CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=sources[entry.name],
                    is_sensitive=entry.sensitive,
                )
                for entry in describe_topic(result.configs, self._settings.current)
            ]
        return answer


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments={each.partition_index: tuple(each.broker_ids) for each in topic.assignments},
        configs={config.name: config.value for config in topic.configs},
    )


def _failed(name: str, error: ProtocolError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message, configs=[])


def refuse(request: CreateTopicsRequest, version: int, error: ProtocolError) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_failed(topic.name, error) for topic in request.topics])
