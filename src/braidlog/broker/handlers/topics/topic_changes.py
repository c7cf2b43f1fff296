"""Topics come, grow and go: CreateTopics, CreatePartitions, DeleteTopics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.config.broker import BrokerSettings
from braidlog.config.describe import describe_topic, topic_sources
from braidlog.controller.controller import Controller
from braidlog.controller.requests import NewPartitions, NewTopic, NewTopicResult, TopicRef
from braidlog.core.protocol_errors import NONE, InvalidRequestError, ProtocolError
from braidlog.core.time_slice import TimeSlice
from braidlog.net.exchange import Exchange
from braidlog.wire.generated.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from braidlog.wire.generated.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from braidlog.wire.generated.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse


class CreateTopicsHandler:
    """CreateTopics (api 19): create topics, or (v1+, validate_only) say what creating them would answer.

    v4   -1 partitions or replicas mean the broker's defaults      v5   the effective settings are returned
    v7   topic ids
    """

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


class CreatePartitionsHandler:
    """CreatePartitions (api 37): raise the number of partitions of topics; it never shrinks."""

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


class DeleteTopicsHandler:
    """DeleteTopics (api 20): delete topics by name or, from v6 on, by id."""

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
