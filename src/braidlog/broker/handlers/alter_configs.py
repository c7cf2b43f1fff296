"""AlterConfigs (api 33) replaces all overrides of a resource; IncrementalAlterConfigs (api 44) changes some."""

from __future__ import annotations

from collections.abc import Iterable

from braidlog.controller.loop import Controller
from braidlog.controller.requests import ConfigChange, ConfigChanges, ConfigResource, ConfigResult, FullConfig
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.net.exchange import Exchange
from braidlog.wire.generated import alter_configs, incremental_alter_configs
from braidlog.wire.generated.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from braidlog.wire.generated.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class AlterConfigsHandler:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def handle(self, request: AlterConfigsRequest, exchange: Exchange) -> AlterConfigsResponse:
        wanted = [
            FullConfig(
                ConfigResource(resource.resource_type, resource.resource_name),
                tuple((config.name, config.value) for config in resource.configs),
            )
            for resource in request.resources
        ]
        return _full(await self._controller.alter_configs(wanted, request.validate_only))

    def refuse(self, request: AlterConfigsRequest, version: int, error: ProtocolError) -> AlterConfigsResponse:
        return _full(
            ConfigResult(ConfigResource(resource.resource_type, resource.resource_name), error)
            for resource in request.resources
        )


class IncrementalAlterConfigsHandler:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def handle(
        self, request: IncrementalAlterConfigsRequest, exchange: Exchange
    ) -> IncrementalAlterConfigsResponse:
        wanted = [
            ConfigChanges(
                ConfigResource(resource.resource_type, resource.resource_name),
                tuple(ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs),
            )
            for resource in request.resources
        ]
        return _incremental(await self._controller.incremental_alter_configs(wanted, request.validate_only))

    def refuse(
        self, request: IncrementalAlterConfigsRequest, version: int, error: ProtocolError
    ) -> IncrementalAlterConfigsResponse:
        return _incremental(
            ConfigResult(ConfigResource(resource.resource_type, resource.resource_name), error)
            for resource in request.resources
        )


def _full(results: Iterable[ConfigResult]) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[
            alter_configs.AlterConfigsResourceResponse(
                error_code=NONE if result.error is None else result.error.code,
                error_message=None if result.error is None else result.error.message,
                resource_type=result.resource.type,
                resource_name=result.resource.name,
            )
            for result in results
        ]
    )


def _incremental(results: Iterable[ConfigResult]) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            incremental_alter_configs.AlterConfigsResourceResponse(
                error_code=NONE if result.error is None else result.error.code,
                error_message=None if result.error is None else result.error.message,
                resource_type=result.resource.type,
                resource_name=result.resource.name,
            )
            for result in results
        ]
    )
