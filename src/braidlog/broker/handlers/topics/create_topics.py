"""CreateTopics (api 19): create topics, or (v1+, validate_only) say what creating them would answer.

v4   -1 partitions or replicas mean the broker's defaults      v5   the effective settings are returned
v7   topic ids
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.broker.requests.time_slicing import TimeSlice
from braidlog.config.broker import BrokerSettings
from braidlog.config.describe import describe_topic, topic_sources
from braidlog.controller.controller import Controller
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
    def __init__(self, controller: Controller, settings: DynamicBrokerSettings) -> None:
        self._controller = controller
        self._settings = settings

    async def handle(self, request: CreateTopicsRequest, exchange: Exchange) -> CreateTopicsResponse:
        times = Counter(topic.name for topic in request.topics)
        time_slice = TimeSlice()
        wanted: list[NewTopic] = []
        for topic in request.topics:
            if times[topic.name] == 1:
                wanted.append(_new_topic(topic))
            await time_slice.yield_if_over()
        results = await self._controller.create_topics(wanted, request.validate_only)
        describe = _ConfigDescriber(self._settings.current)
        answers: list[CreatableTopicResult] = []
        for result in results:
            answers.append(_result(result, describe if exchange.version >= 5 else None))
            await time_slice.yield_if_over()
        for name in sorted(name for name, count in times.items() if count > 1):
            error = InvalidRequestError("the topic is named twice in one request")
            answers.append(_failed(name, error))
        return CreateTopicsResponse(topics=answers)

    @staticmethod
    def error_response(request: CreateTopicsRequest, version: int, error: ProtocolError) -> CreateTopicsResponse:
        return CreateTopicsResponse(topics=[_failed(topic.name, error) for topic in request.topics])


class _ConfigDescriber:
    """Topics that were created with the same overrides have the same settings: they are described once."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._known: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}

    def configs(self, overrides: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        key = tuple(overrides.items())
        known = self._known.get(key)
        if known is None:
            sources = topic_sources(overrides, self._settings)
            known = self._known[key] = [
                CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.read_only,
                    config_source=sources[entry.name],
                    is_sensitive=entry.sensitive,
                )
                for entry in describe_topic(overrides, self._settings)
            ]
        return known


def _result(result: NewTopicResult, describe: _ConfigDescriber | None) -> CreatableTopicResult:
    if result.error is not None:
        return _failed(result.name, result.error)
    answer = CreatableTopicResult(
        name=result.name,
        topic_id=result.topic_id,
        error_message=None,
        num_partitions=result.partitions,
        replication_factor=result.replication_factor,
    )
    if describe is not None:
        answer.configs = describe.configs(result.configs)
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
