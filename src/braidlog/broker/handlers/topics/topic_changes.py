"""Topics come, grow and go: CreateTopics, CreatePartitions, DeleteTopics.

Where the client has a quota of such changes, each topic that could be changed takes from it before it is (KIP-599).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.broker.quotas.mutation_quotas import MutationQuotas
from braidlog.cluster.image import ClusterImage
from braidlog.config.broker import BrokerSettings
from braidlog.config.describe import describe_topic, topic_sources
from braidlog.controller.controller import Controller
from braidlog.controller.requests import (
    DeletedTopicResult,
    NewPartitions,
    NewTopic,
    NewTopicResult,
    TopicRef,
    TopicResult,
)
from braidlog.controller.topics import find
from braidlog.core.protocol_errors import (
    NONE,
    InvalidRequestError,
    NotControllerError,
    ProtocolError,
    TopicAuthorizationFailedError,
    UnknownTopicIdError,
)
from braidlog.core.time_slice import TimeSlice
from braidlog.net.exchange import Exchange
from braidlog.security.acls import CLUSTER_RESOURCE, AclOperation, AclResourceType
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

if TYPE_CHECKING:
    from braidlog.broker.policies import CreateTopicPolicy


class CreateTopicsHandler:
    """CreateTopics (api 19): create topics, or (v1+, validate_only) say what creating them would answer.

    v4   -1 partitions or replicas mean the broker's defaults      v5   the effective settings are returned
    v7   topic ids
    """

    def __init__(
        self,
        controller: Controller,
        settings: DynamicBrokerSettings,
        authorizer: Authorizer,
        quotas: MutationQuotas,
        policy: CreateTopicPolicy | None = None,
    ) -> None:
        self._controller = controller
        self._settings = settings
        self._authorizer = authorizer
        self._policy = policy
        self._quotas = quotas

    async def handle(self, request: CreateTopicsRequest, exchange: Exchange) -> CreateTopicsResponse:
        times = Counter(topic.name for topic in request.topics)
        if self._authorizer.enabled:
            _require_controller(self._controller)
        creatable = await self._creatable(times, exchange)
        describable = await self._authorizer.allowed_in_slices(
            exchange, AclOperation.DESCRIBE_CONFIGS, AclResourceType.TOPIC, times, log_if_denied=False
        )
        time_slice = TimeSlice()
        wanted: list[NewTopic] = []
        refused: list[CreatableTopicResult] = []
        for topic in request.topics:
            if times[topic.name] == 1:
                if topic.name in creatable:
                    wanted.append(_new_topic(topic))
                else:
                    refused.append(_failed(topic.name, TopicAuthorizationFailedError("Authorization failed.")))
            await time_slice.yield_if_over()
        results: list[NewTopicResult] = []
        quota = None if request.validate_only else self._quotas.of(exchange)
        if quota is not None:
            allowed: list[NewTopic] = []
            checked = await self._create(wanted, True)
            for topic_wanted, result in zip(wanted, checked, strict=True):
                error = result.error or quota.spend(result.partitions)
                if error is None:
                    allowed.append(topic_wanted)
                else:
                    results.append(NewTopicResult(result.name, error))
            wanted = allowed
        results += await self._create(wanted, request.validate_only)
        describe = _ConfigDescriber(self._settings.current)
        answers: list[CreatableTopicResult] = []
        for result in results:
            shown = exchange.version >= 5 and result.name in describable
            answers.append(_result(result, describe if shown else None))
            if result.error is None and result.name not in describable:
                _hide_configs(answers[-1])
            await time_slice.yield_if_over()
        for name in sorted(name for name, count in times.items() if count > 1):
            error = InvalidRequestError("the topic is named twice in one request")
            refused.append(_failed(name, error))
        for answer in refused:
            if answer.name not in describable:
                _hide_configs(answer)
        return CreateTopicsResponse(topics=answers + refused)

    async def _creatable(self, names: Mapping[str, int], exchange: Exchange) -> frozenset[str]:
        if self._authorizer.authorize(exchange, AclOperation.CREATE, *CLUSTER_RESOURCE, log_if_denied=False):
            return frozenset(names)
        return await self._authorizer.allowed_in_slices(exchange, AclOperation.CREATE, AclResourceType.TOPIC, names)

    async def _create(self, wanted: Sequence[NewTopic], validate_only: bool) -> list[NewTopicResult]:
        if self._policy is None:
            return await self._controller.create_topics(wanted, validate_only)
        return await self._policy.create_topics(self._controller.create_topics, wanted, validate_only)

    @staticmethod
    def error_response(request: CreateTopicsRequest, version: int, error: ProtocolError) -> CreateTopicsResponse:
        return CreateTopicsResponse(topics=[_failed(topic.name, error) for topic in request.topics])


def _require_controller(controller: Controller) -> None:
    """Any other broker says so, whatever the client may do."""
    if not controller.active:
        raise NotControllerError("this broker is not the controller")


def _hide_configs(answer: CreatableTopicResult) -> None:
    """From who may not see them; of what is said along with them nothing is shown either."""
    answer.topic_config_error_code = TopicAuthorizationFailedError.code
    answer.num_partitions = answer.replication_factor = -1
    answer.configs = []


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

    def __init__(self, controller: Controller, authorizer: Authorizer, quotas: MutationQuotas) -> None:
        self._controller = controller
        self._authorizer = authorizer
        self._quotas = quotas

    async def handle(self, request: CreatePartitionsRequest, exchange: Exchange) -> CreatePartitionsResponse:
        if self._authorizer.enabled:
            _require_controller(self._controller)
        times = Counter(topic.name for topic in request.topics)
        alterable = await self._authorizer.allowed_in_slices(
            exchange, AclOperation.ALTER, AclResourceType.TOPIC, [name for name, count in times.items() if count == 1]
        )
        time_slice = TimeSlice()
        wanted: list[NewPartitions] = []
        refused: list[CreatePartitionsTopicResult] = []
        for topic in request.topics:
            # What is named twice is refused by the controller, whoever asks.
            if times[topic.name] > 1 or topic.name in alterable:
                wanted.append(NewPartitions(topic.name, topic.count, _assignments(topic)))
            else:
                refused.append(_not_grown(topic.name, TopicAuthorizationFailedError("Authorization failed.")))
            await time_slice.yield_if_over()
        results: list[TopicResult] = []
        quota = None if request.validate_only else self._quotas.of(exchange)
        if quota is not None:
            allowed: list[NewPartitions] = []
            checked = await self._controller.create_partitions(wanted, True)
            for growth, result in zip(wanted, checked, strict=True):
                error = result.error or quota.spend(result.added)
                if error is None:
                    allowed.append(growth)
                else:
                    results.append(TopicResult(result.name, error))
            wanted = allowed
        results += await self._controller.create_partitions(wanted, request.validate_only)
        answers: list[CreatePartitionsTopicResult] = []
        for result in results:
            answers.append(
                CreatePartitionsTopicResult(
                    name=result.name,
                    error_code=NONE if result.error is None else result.error.code,
                    error_message=None if result.error is None else result.error.message,
                )
            )
            await time_slice.yield_if_over()
        return CreatePartitionsResponse(results=answers + refused)

    @staticmethod
    def error_response(
        request: CreatePartitionsRequest, version: int, error: ProtocolError
    ) -> CreatePartitionsResponse:
        return CreatePartitionsResponse(results=[_not_grown(topic.name, error) for topic in request.topics])


def _not_grown(name: str, error: ProtocolError) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)


def _assignments(topic: CreatePartitionsTopic) -> tuple[tuple[int, ...], ...] | None:
    if topic.assignments is None:
        return None
    return tuple(tuple(assignment.broker_ids) for assignment in topic.assignments)


class DeleteTopicsHandler:
    """DeleteTopics (api 20): delete topics by name or, from v6 on, by id."""

    def __init__(
        self, controller: Controller, settings: DynamicBrokerSettings, authorizer: Authorizer, quotas: MutationQuotas
    ) -> None:
        self._controller = controller
        self._settings = settings
        self._authorizer = authorizer
        self._quotas = quotas

    async def handle(self, request: DeleteTopicsRequest, exchange: Exchange) -> DeleteTopicsResponse:
        wanted = _wanted(request, exchange.version)
        refused: list[DeletableTopicResult] = []
        # Where nothing is ever deleted the controller says so to everybody.
        is_enabled = self._settings.current.get_bool("delete.topic.enable")
        if self._authorizer.enabled and is_enabled:
            _require_controller(self._controller)
            wanted, refused = await self._split_authorized(wanted, exchange)
        results: list[DeletedTopicResult] = []
        quota = self._quotas.of(exchange) if is_enabled and self._controller.active else None
        if quota is not None:
            image = self._controller.image
            allowed: list[TopicRef] = []
            for ref in wanted:
                topic = find(image, ref)
                error = None if topic is None else quota.spend(len(topic.partitions))
                if error is None or topic is None:
                    allowed.append(ref)
                else:
                    results.append(DeletedTopicResult(topic.name, topic.topic_id, error))
            wanted = allowed
        results += await self._controller.delete_topics(wanted)
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
        return DeleteTopicsResponse(responses=answers + refused)

    async def _split_authorized(
        self, wanted: list[TopicRef], exchange: Exchange
    ) -> tuple[list[TopicRef], list[DeletableTopicResult]]:
        """What the client may delete, and answers about the rest; whose name it may not know is called by the id."""
        image = self._controller.image
        names = {ref: ref.name if ref.name is not None else _name_of(image, ref) for ref in wanted}
        known = [name for name in names.values() if name is not None]
        deletable = await self._authorizer.allowed_in_slices(
            exchange, AclOperation.DELETE, AclResourceType.TOPIC, known
        )
        describable = await self._authorizer.allowed_in_slices(
            exchange, AclOperation.DESCRIBE, AclResourceType.TOPIC, known
        )
        allowed: list[TopicRef] = []
        refused: list[DeletableTopicResult] = []
        for ref in wanted:
            name = names[ref]
            if name is None:
                refused.append(_not_deleted(None, ref.topic_id, UnknownTopicIdError()))
            elif name in deletable and (ref.name is not None or name in describable):
                allowed.append(ref)
            else:
                shown = name if ref.name is not None or name in describable else None
                refused.append(_not_deleted(shown, ref.topic_id, TopicAuthorizationFailedError()))
        return allowed, refused

    @staticmethod
    def error_response(request: DeleteTopicsRequest, version: int, error: ProtocolError) -> DeleteTopicsResponse:
        return DeleteTopicsResponse(
            responses=[_not_deleted(topic.name, topic.topic_id, error) for topic in _wanted(request, version)]
        )


def _not_deleted(name: str | None, topic_id: bytes, error: ProtocolError) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)


def _name_of(image: ClusterImage, ref: TopicRef) -> str | None:
    topic = image.topic_by_id(ref.topic_id)
    return None if topic is None else topic.name


def _wanted(request: DeleteTopicsRequest, version: int) -> list[TopicRef]:
    if version >= 6:
        return [TopicRef(topic.name, topic.topic_id) for topic in request.topics]
    return [TopicRef(name) for name in request.topic_names]
