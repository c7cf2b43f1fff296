"""AlterConfigs (api 33) replaces all overrides of a resource; IncrementalAlterConfigs (api 44) changes some."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.config_changes import ConfigChangeListener
from braidlog.broker.handlers.cluster.config_access import check_configs
from braidlog.broker.handlers.cluster.loggers import alter_loggers, require_this_broker
from braidlog.broker.handlers.store_problems import told_to_client
from braidlog.controller.direct_writes import DirectWrites
from braidlog.controller.requests import (
    ConfigChange,
    ConfigChanges,
    ConfigResource,
    ConfigResult,
    FullConfig,
    ResourceType,
)
from braidlog.core.protocol_errors import NONE, InvalidRequestError, ProtocolError
from braidlog.core.time_slice import TimeSlice
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation
from braidlog.wire.generated import alter_configs, incremental_alter_configs
from braidlog.wire.generated.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from braidlog.wire.generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from braidlog.broker.policies import AlterConfigPolicy


class AlterConfigsHandler:
    def __init__(
        self,
        direct_writes: DirectWrites,
        config_changes: ConfigChangeListener,
        authorizer: Authorizer,
        policy: AlterConfigPolicy | None = None,
    ) -> None:
        self._config_changes = config_changes
        self._authorizer = authorizer
        alter = direct_writes.alter_configs
        self._alter = alter if policy is None else partial(policy.alter_configs, alter)

    async def handle(self, request: AlterConfigsRequest, exchange: Exchange) -> AlterConfigsResponse:
        time_slice = TimeSlice()
        wanted: list[FullConfig] = []
        # What is refused, by its place in the request.
        refused: dict[int, ConfigResult] = {}
        for place, resource in enumerate(request.resources):
            named = ConfigResource(resource.resource_type, resource.resource_name)
            error = _refusal(self._authorizer, exchange, named)
            if error is not None:
                refused[place] = ConfigResult(named, error)
                continue
            wanted.append(FullConfig(named, tuple((config.name, config.value) for config in resource.configs)))
            await time_slice.yield_if_over()
        response = AlterConfigsResponse(responses=[])
        results: list[ConfigResult] = []
        if wanted:
            results = await _written(self._alter(wanted, request.validate_only), self._config_changes)
        others = iter(results)
        for place in range(len(request.resources)):
            result = refused[place] if place in refused else next(others)
            response.responses.append(_full(result))
            await time_slice.yield_if_over()
        return response

    @staticmethod
    def error_response(request: AlterConfigsRequest, version: int, error: ProtocolError) -> AlterConfigsResponse:
        return AlterConfigsResponse(
            responses=[
                _full(ConfigResult(ConfigResource(resource.resource_type, resource.resource_name), error))
                for resource in request.resources
            ]
        )


class IncrementalAlterConfigsHandler:
    """Overrides are the store's to keep; the levels of loggers are this process's own."""

    def __init__(
        self,
        direct_writes: DirectWrites,
        config_changes: ConfigChangeListener,
        broker_id: int,
        authorizer: Authorizer,
        policy: AlterConfigPolicy | None = None,
    ) -> None:
        self._config_changes = config_changes
        self._authorizer = authorizer
        self._broker_id = broker_id
        alter = direct_writes.incremental_alter_configs
        self._alter = alter if policy is None else partial(policy.alter_configs, alter)

    async def handle(
        self, request: IncrementalAlterConfigsRequest, exchange: Exchange
    ) -> IncrementalAlterConfigsResponse:
        time_slice = TimeSlice()
        wanted: list[ConfigChanges] = []
        refused: dict[int, ConfigResult] = {}
        for place, resource in enumerate(request.resources):
            named = ConfigResource(resource.resource_type, resource.resource_name)
            error = _refusal(self._authorizer, exchange, named)
            if error is not None:
                refused[place] = ConfigResult(named, error)
                continue
            changes = (ConfigChange(each.name, each.config_operation, each.value) for each in resource.configs)
            wanted.append(ConfigChanges(named, tuple(changes)))
            await time_slice.yield_if_over()
        kept = [each for each in wanted if each.resource.type != ResourceType.BROKER_LOGGER]
        results: list[ConfigResult] = []
        if kept:
            results = await _written(self._alter(kept, request.validate_only), self._config_changes)
        others = iter(results)
        times = Counter(each.resource for each in wanted)
        response = IncrementalAlterConfigsResponse(responses=[])
        allowed = iter(wanted)
        for place in range(len(request.resources)):
            if place in refused:
                result = refused[place]
            elif (each := next(allowed)).resource.type == ResourceType.BROKER_LOGGER:
                result = self._alter_loggers(each, times[each.resource], request.validate_only)
            else:
                result = next(others)
            response.responses.append(_incremental(result))
            await time_slice.yield_if_over()
        return response

    def _alter_loggers(self, wanted: ConfigChanges, times: int, validate_only: bool) -> ConfigResult:
        try:
            if times > 1:
                raise InvalidRequestError("each resource may come only once in a request")
            require_this_broker(wanted.resource.name, self._broker_id)
            alter_loggers(wanted.changes, validate_only)
        except ProtocolError as error:
            return ConfigResult(wanted.resource, error)
        return ConfigResult(wanted.resource)

    @staticmethod
    def error_response(
        request: IncrementalAlterConfigsRequest, version: int, error: ProtocolError
    ) -> IncrementalAlterConfigsResponse:
        return IncrementalAlterConfigsResponse(
            responses=[
                _incremental(ConfigResult(ConfigResource(resource.resource_type, resource.resource_name), error))
                for resource in request.resources
            ]
        )


def _refusal(authorizer: Authorizer, exchange: Exchange, resource: ConfigResource) -> ProtocolError | None:
    try:
        check_configs(authorizer, exchange, AclOperation.ALTER_CONFIGS, resource.type, resource.name)
    except ProtocolError as error:
        return error
    return None


async def _written(writing: Awaitable[list[ConfigResult]], config_changes: ConfigChangeListener) -> list[ConfigResult]:
    """Whoever asks this broker next sees what was changed."""
    with told_to_client():
        results = await writing
        await config_changes.catch_up()
    return results


def _full(result: ConfigResult) -> alter_configs.AlterConfigsResourceResponse:
    return alter_configs.AlterConfigsResourceResponse(
        error_code=NONE if result.error is None else result.error.code,
        error_message=None if result.error is None else result.error.message,
        resource_type=result.resource.type,
        resource_name=result.resource.name,
    )


def _incremental(result: ConfigResult) -> incremental_alter_configs.AlterConfigsResourceResponse:
    return incremental_alter_configs.AlterConfigsResourceResponse(
        error_code=NONE if result.error is None else result.error.code,
        error_message=None if result.error is None else result.error.message,
        resource_type=result.resource.type,
        resource_name=result.resource.name,
    )
