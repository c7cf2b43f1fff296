"""Decides about config overrides of topics, brokers and groups, whole (AlterConfigs) or key by key (KIP-339)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from braidlog.cluster import paths, records
from braidlog.cluster.image import ImageDelta, broker_entity, group_entity, group_of, topic_entity
from braidlog.cluster.store import Create
from braidlog.config import group
from braidlog.config.dynamic import Alteration, alter_broker, alter_group, alter_topic, validate_dynamic
from braidlog.config.topic import validate_overrides
from braidlog.config.topic_names import validate_name
from braidlog.config.unsupported_settings import check_changes
from braidlog.controller.plan import ControllerContext, Plan, Put, Remove, Step
from braidlog.controller.requests import (
    ConfigChange,
    ConfigChanges,
    ConfigOperation,
    ConfigResource,
    ConfigResult,
    FullConfig,
    ResourceType,
)
from braidlog.core.protocol_errors import (
    InvalidConfigError,
    InvalidRequestError,
    ProtocolError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import BrokerId


def alter(
    context: ControllerContext,
    requests: Sequence[FullConfig],
    validate_only: bool,
    times: Mapping[ConfigResource, int] | None = None,
) -> tuple[Plan, list[ConfigResult]]:
    """Replace the overrides of each resource: whatever is not named goes back to its default.

    These may be a piece of a larger request: `times` is how often that names each resource.
    """
    changes = [
        ConfigChanges(
            each.resource, tuple(ConfigChange(key, ConfigOperation.SET, value) for key, value in each.entries)
        )
        for each in requests
    ]
    return _alter(context, changes, validate_only, times, keep=False)


def alter_incrementally(
    context: ControllerContext,
    requests: Sequence[ConfigChanges],
    validate_only: bool,
    times: Mapping[ConfigResource, int] | None = None,
) -> tuple[Plan, list[ConfigResult]]:
    return _alter(context, requests, validate_only, times, keep=True)


def _alter(
    context: ControllerContext,
    requests: Sequence[ConfigChanges],
    validate_only: bool,
    times: Mapping[ConfigResource, int] | None,
    *,
    keep: bool,
) -> tuple[Plan, list[ConfigResult]]:
    times = Counter(request.resource for request in requests) if times is None else times
    steps: list[Step] = []
    changed: dict[str, Mapping[str, str]] = {}
    results: list[ConfigResult] = []
    for request in requests:
        try:
            if times[request.resource] > 1:
                raise InvalidRequestError("each resource may come only once in a request")
            entity = entity_of(context, request.resource)
            overrides = _altered(context, request, context.image.config(entity) if keep else {})
        except ProtocolError as error:
            results.append(ConfigResult(request.resource, error))
            continue
        results.append(ConfigResult(request.resource))
        changed[entity] = overrides
        steps.append(_written(entity, overrides))
        steps.append(Create(paths.CONFIG_CHANGE, records.encode_config_change(entity), sequential=True))
    if validate_only:
        return Plan(), results
    return Plan(steps, ImageDelta(configs_changed=changed)), results


def entity_of(context: ControllerContext, resource: ConfigResource) -> str:
    """Where the resource's overrides lie; raises if it cannot have any."""
    if resource.type == ResourceType.TOPIC:
        if not resource.name:
            raise InvalidRequestError("name a topic: there are no overrides for all topics, only broker defaults")
        validate_name(resource.name)
        if context.image.topic(resource.name) is None:
            raise UnknownTopicOrPartitionError(f"The topic '{resource.name}' does not exist.")
        return topic_entity(resource.name)
    if resource.type == ResourceType.BROKER:
        if not resource.name:
            return broker_entity(None)
        try:
            broker_id = BrokerId(int(resource.name))
        except ValueError:
            raise InvalidRequestError(f"a broker's name is its id, a number, not {resource.name!r}") from None
        if broker_id not in context.image.brokers:
            raise InvalidRequestError(
                f"broker {broker_id} is not registered; registered: {sorted(context.image.brokers)}"
            )
        return broker_entity(broker_id)
    if resource.type == ResourceType.GROUP:
        if not resource.name:
            raise InvalidRequestError("name a group: there are no overrides for all groups, only broker settings")
        # It need not exist: what it sets counts from its first member on.
        return group_entity(resource.name)
    if resource.type == ResourceType.BROKER_LOGGER:
        raise InvalidRequestError("log levels change one by one, with IncrementalAlterConfigs, not as a whole")
    raise InvalidRequestError(
        "the controller keeps overrides of topics (2), brokers (4) and groups (32) only, "
        f"not of resource type {resource.type}"
    )


def _written(entity: str, overrides: Mapping[str, str]) -> Step:
    # A group's node is not deleted with the group, as a topic's is: without overrides it would lie there for ever.
    if not overrides and group_of(entity) is not None:
        return Remove(paths.config(entity))
    return Put(paths.config(entity), records.encode_config(overrides))


def _altered(context: ControllerContext, request: ConfigChanges, current: Mapping[str, str]) -> dict[str, str]:
    settings = context.settings
    alterations = [Alteration(each.key, each.operation, each.value) for each in request.changes]
    if any(not each.key for each in alterations):
        raise InvalidRequestError("a config has no name")
    if request.resource.type == ResourceType.TOPIC:
        overrides = alter_topic(current, alterations, settings)
        validate_overrides(overrides, settings)
    elif request.resource.type == ResourceType.GROUP:
        overrides = alter_group(current, alterations, settings)
        group.validate_overrides(overrides, settings)
    else:
        try:
            overrides = alter_broker(current, alterations, settings)
        except InvalidConfigError as problem:
            # For brokers, Kafka says so.
            raise InvalidRequestError(problem.message) from problem
        check_changes(overrides, settings)
        try:
            validate_dynamic(overrides, settings, per_broker=bool(request.resource.name))
        except InvalidConfigError as problem:
            raise InvalidRequestError(problem.message) from problem
        if context.check_broker_overrides is not None:
            context.check_broker_overrides(entity_of(context, request.resource), overrides)
    return overrides
