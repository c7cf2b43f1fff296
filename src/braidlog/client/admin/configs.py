"""Settings of topics, brokers, groups and the other resources that have some."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
from braidlog.client.admin.lookup_strategies import ANY, BrokerStrategy, ControllerStrategy
from braidlog.client.admin.results import Results
from braidlog.client.arguments import Many, listed, mapped, names_of
from braidlog.client.broker_errors import broker_error
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.wire.generated.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from braidlog.wire.generated.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from braidlog.wire.generated.list_client_metrics_resources import (
    ListClientMetricsResourcesRequest,
    ListClientMetricsResourcesResponse,
)

DESCRIBE_CONFIGS: Final = 32
INCREMENTAL_ALTER_CONFIGS: Final = 44
LIST_CLIENT_METRICS_RESOURCES: Final = 74
# The first versions with synonyms, and with documentation.
_WITH_SYNONYMS: Final = 1
_WITH_DOCUMENTATION: Final = 3


class ResourceType(IntEnum):
    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, value: object) -> ResourceType:
        return cls.UNKNOWN


class ConfigSource(IntEnum):
    """Where a value comes from."""

    UNKNOWN = 0
    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8

    @classmethod
    def _missing_(cls, value: object) -> ConfigSource:
        return cls.UNKNOWN


class ConfigType(IntEnum):
    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9

    @classmethod
    def _missing_(cls, value: object) -> ConfigType:
        return cls.UNKNOWN


class Alter(IntEnum):
    """What to do to a setting; APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigResource(NamedTuple):
    """What has settings. A broker's name is its id; the empty name stands for all brokers."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        """A topic's settings."""
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: int) -> ConfigResource:
        """One broker's settings."""
        return cls(ResourceType.BROKER, str(broker_id))

    @classmethod
    def all_brokers(cls) -> ConfigResource:
        """Settings of all brokers that have none of their own."""
        return cls(ResourceType.BROKER, "")

    @classmethod
    def broker_logger(cls, broker_id: int) -> ConfigResource:
        """The levels of one broker's loggers."""
        return cls(ResourceType.BROKER_LOGGER, str(broker_id))

    @classmethod
    def group(cls, name: str) -> ConfigResource:
        """A group's settings."""
        return cls(ResourceType.GROUP, name)

    @classmethod
    def client_metrics(cls, name: str) -> ConfigResource:
        """A subscription to client metrics (KIP-714)."""
        return cls(ResourceType.CLIENT_METRICS, name)

    def __str__(self) -> str:
        if self.type == ResourceType.BROKER and not self.name:
            return "all brokers"
        return f"{self.type.name.lower().replace('_', ' ')} {self.name}"


class ConfigChange(NamedTuple):
    name: str
    value: str | None = None
    how: Alter = Alter.SET


class Synonym(NamedTuple):
    """Another setting that gives this one its value, unless one before it does."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    name: str
    # None of what is secret.
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    type: ConfigType
    synonyms: tuple[Synonym, ...]
    documentation: str | None

    @property
    def is_default(self) -> bool:
        return self.source == ConfigSource.DEFAULT


def describe_configs(
    driver: AdminApiDriver,
    resources: Many[ConfigResource],
    *,
    names: Many[str] | None = None,
    synonyms: bool = True,
    documentation: bool = False,
) -> Results[ConfigResource, dict[str, ConfigEntry]]:
    keys = None if names is None else names_of(names, "names")
    asked = listed(resources, "resources")

    async def describe(
        node: BrokerConnection, some: list[ConfigResource]
    ) -> dict[ConfigResource, dict[str, ConfigEntry] | ProtocolError]:
        version = node.version_for(DESCRIBE_CONFIGS)
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
                for kind, name in some
            ],
            include_synonyms=synonyms and version >= _WITH_SYNONYMS,
            include_documentation=documentation and version >= _WITH_DOCUMENTATION,
        )
        found: dict[ConfigResource, dict[str, ConfigEntry] | ProtocolError] = {}
        for each in (await node.call(DESCRIBE_CONFIGS, request, DescribeConfigsResponse)).results:
            resource = ConfigResource(ResourceType(each.resource_type), each.resource_name)
            if each.error_code != NONE:
                found[resource] = broker_error(each.error_code, str(resource), each.error_message)
            else:
                entries = sorted(each.configs, key=lambda config: config.name)
                found[resource] = {config.name: _entry(config) for config in entries}
        return found

    return driver.ask(asked, BrokerStrategy(_broker_of), describe)


def alter_configs(
    driver: AdminApiDriver,
    changes: Mapping[ConfigResource, Mapping[str, str | None] | Many[ConfigChange]],
    *,
    validate_only: bool = False,
) -> Results[ConfigResource, None]:
    given = mapped(changes, "changes", '{ConfigResource.topic("orders"): {"retention.ms": "3600000"}}')
    wanted = {resource: _changes(resource, each) for resource, each in given.items()}

    async def alter(node: BrokerConnection, some: list[ConfigResource]) -> dict[ConfigResource, ProtocolError | None]:
        request = IncrementalAlterConfigsRequest(
            resources=[
                AlterConfigsResource(
                    resource_type=resource.type,
                    resource_name=resource.name,
                    configs=[
                        AlterableConfig(name=name, config_operation=how, value=value)
                        for name, value, how in wanted[resource]
                    ],
                )
                for resource in some
            ],
            validate_only=validate_only,
        )
        found: dict[ConfigResource, ProtocolError | None] = {}
        for each in (await node.call(INCREMENTAL_ALTER_CONFIGS, request, IncrementalAlterConfigsResponse)).responses:
            resource = ConfigResource(ResourceType(each.resource_type), each.resource_name)
            failed = each.error_code != NONE
            found[resource] = broker_error(each.error_code, str(resource), each.error_message) if failed else None
        return found

    own = [each for each in wanted if _broker_of(each) != ANY]
    others = [each for each in wanted if _broker_of(each) == ANY]
    outcomes = driver.ask(own, BrokerStrategy(_broker_of), alter).outcomes
    outcomes |= driver.ask(others, ControllerStrategy(), alter).outcomes
    return Results({each: outcomes[each] for each in wanted})


def list_client_metrics_resources(driver: AdminApiDriver) -> list[str]:
    async def names(node: BrokerConnection) -> list[str]:
        request = ListClientMetricsResourcesRequest()
        answer = await node.call(LIST_CLIENT_METRICS_RESOURCES, request, ListClientMetricsResourcesResponse)
        if answer.error_code != NONE:
            raise broker_error(answer.error_code, "client metrics resources")
        return sorted(each.name for each in answer.client_metrics_resources)

    return driver.ask_one(BrokerStrategy(lambda _: ANY), names)


def _broker_of(resource: ConfigResource) -> int:
    """The broker that knows a resource's settings: its own it alone knows, all others any broker."""
    if resource.type not in (ResourceType.BROKER, ResourceType.BROKER_LOGGER) or not resource.name:
        return ANY
    if not resource.name.isdecimal():
        raise UserError(f"{resource}: a broker is named by its id, a whole number")
    return int(resource.name)


def _changes(resource: ConfigResource, given: Mapping[str, str | None] | Many[ConfigChange]) -> list[ConfigChange]:
    if isinstance(given, Mapping):
        changes = [
            ConfigChange(name, value, Alter.DELETE if value is None else Alter.SET) for name, value in given.items()
        ]
    else:
        changes = listed(given, "changes")
    if not changes:
        raise UserError(f"{resource}: nothing to change; give at least one setting")
    return changes


def _entry(config: DescribeConfigsResourceResult) -> ConfigEntry:
    source = ConfigSource(config.config_source)
    if config.config_source < 0:
        # Version 0 only distinguishes defaults from the rest.
        source = ConfigSource.DEFAULT if config.is_default else ConfigSource.UNKNOWN
    return ConfigEntry(
        name=config.name,
        value=config.value,
        source=source,
        is_read_only=config.read_only,
        is_sensitive=config.is_sensitive,
        type=ConfigType(config.config_type),
        synonyms=tuple(Synonym(each.name, each.value, ConfigSource(each.source)) for each in config.synonyms),
        documentation=config.documentation or None,
    )
