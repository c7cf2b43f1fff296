"""DescribeConfigs (api 32): settings of topics, brokers, groups and loggers with their sources, synonyms and meaning.

v1   sources and synonyms in place of a "default" flag, which Kafka never sets      v3   types, documentation

A resource that is named again is described once; many are described in slices (`broker/requests/time_slicing`).
"""

from __future__ import annotations

from collections.abc import Generator

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.broker.handlers.cluster.config_access import check_configs
from braidlog.broker.handlers.cluster.loggers import describe_loggers, require_this_broker
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from braidlog.config.topic_names import validate_name
from braidlog.controller.requests import ResourceType
from braidlog.core.protocol_errors import InvalidRequestError, ProtocolError, UnknownTopicOrPartitionError
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)


class DescribeConfigsHandler:
    def __init__(
        self, cache: MetadataCache, settings: DynamicBrokerSettings, broker_id: int, authorizer: Authorizer
    ) -> None:
        self._cache = cache
        self._authorizer = authorizer
        self._settings = settings
        self._broker_id = broker_id

    def handle(
        self, request: DescribeConfigsRequest, exchange: Exchange
    ) -> Generator[None, None, DescribeConfigsResponse]:
        named = {(wanted.resource_type, wanted.resource_name): wanted for wanted in request.resources}
        results: list[DescribeConfigsResult] = []
        refused: list[DescribeConfigsResult] = []
        for wanted in named.values():
            try:
                check_configs(
                    self._authorizer,
                    exchange,
                    AclOperation.DESCRIBE_CONFIGS,
                    wanted.resource_type,
                    wanted.resource_name,
                )
            except ProtocolError as error:
                refused.append(_failed(wanted, error))
            else:
                results.append(self._describe(wanted, request))
            yield
        return DescribeConfigsResponse(results=results + refused)

    def _describe(self, wanted: DescribeConfigsResource, request: DescribeConfigsRequest) -> DescribeConfigsResult:
        answer = DescribeConfigsResult(
            error_message=None, resource_type=wanted.resource_type, resource_name=wanted.resource_name
        )
        try:
            entries = self._entries(wanted)
        except Exception as problem:
            error = to_protocol_error(problem, f"describe configs of {wanted.resource_name!r}")
            answer.error_code, answer.error_message = error.code, error.message
            return answer
        keys = wanted.configuration_keys
        # As in Kafka an empty list of keys means all of them, like null.
        chosen = entries if not keys else [entry for entry in entries if entry.name in set(keys)]
        answer.configs = [_result(entry, request) for entry in chosen]
        return answer

    def _entries(self, wanted: DescribeConfigsResource) -> list[ConfigEntry]:
        name = wanted.resource_name
        if wanted.resource_type == ResourceType.TOPIC:
            validate_name(name)
            image = self._cache.image
            if image.topic(name) is None:
                raise UnknownTopicOrPartitionError(f"there is no topic {name}")
            return describe_topic(image.topic_config(name), self._settings.current)
        if wanted.resource_type == ResourceType.BROKER:
            if not name:
                return describe_cluster_default(self._settings.current)
            if name != str(self._broker_id):
                raise InvalidRequestError(f"this is broker {self._broker_id}; ask broker {name} itself")
            return describe_broker(self._settings.current)
        if wanted.resource_type == ResourceType.BROKER_LOGGER:
            require_this_broker(name, self._broker_id)
            return describe_loggers()
        if wanted.resource_type == ResourceType.GROUP:
            if not name:
                raise InvalidRequestError("name a group: its name must not be empty")
            return describe_group(self._cache.image.group_config(name), self._settings.current)
        if wanted.resource_type == ResourceType.CLIENT_METRICS:
            return []
        raise InvalidRequestError(f"resource type {wanted.resource_type} has no settings here")

    @staticmethod
    def error_response(request: DescribeConfigsRequest, version: int, error: ProtocolError) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(results=[_failed(wanted, error) for wanted in request.resources])


def _failed(wanted: DescribeConfigsResource, error: ProtocolError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
    )


def _result(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.read_only,
        config_source=entry.source,
        is_sensitive=entry.sensitive,
        config_type=entry.type,
        documentation=entry.documentation if request.include_documentation else None,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
        if request.include_synonyms
        else [],
    )
