"""Settings are asked of who knows them, and changed one by one."""

from __future__ import annotations

from typing import Any

import pytest

from braidlog.client.admin import configs as api
from braidlog.client.admin.admin import Admin, admin_over
from braidlog.client.admin.configs import Alter, ConfigChange, ConfigResource, ConfigSource, ConfigType
from braidlog.core.errors import UserError
from braidlog.core.protocol_errors import InvalidConfigError
from braidlog.wire.generated.describe_configs import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from braidlog.wire.generated.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from support.admin_fakes import ScriptedCluster, ScriptedNode

TOPIC = ConfigResource.topic("orders")
BROKER_2 = ConfigResource.broker(2)
ALL = ConfigResource.all_brokers()


def describe(request: Any) -> DescribeConfigsResponse:
    synonym = DescribeConfigsSynonym(name="log.x", value="1", source=4)
    config = DescribeConfigsResourceResult(name="x", value="1", config_source=4, config_type=5, synonyms=[synonym])
    newer = DescribeConfigsResourceResult(name="w", value="2", config_source=77, config_type=77)
    return DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                resource_type=each.resource_type, resource_name=each.resource_name, configs=[config, newer]
            )
            for each in request.resources
        ]
    )


def alter(request: Any) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                resource_type=each.resource_type,
                resource_name=each.resource_name,
                error_code=40 if each.configs[0].value == "bad" else 0,
            )
            for each in request.resources
        ]
    )


def pair(answer: Any, api_key: int, versions: dict[int, int] | None = None) -> tuple[Admin, dict[int, ScriptedNode]]:
    nodes = {number: ScriptedNode({api_key: answer}, versions) for number in (1, 2)}
    return admin_over(ScriptedCluster(nodes)), nodes


def test_a_brokers_own_settings_are_asked_of_it() -> None:
    calls, nodes = pair(describe, api.DESCRIBE_CONFIGS)
    found = calls.describe_configs([BROKER_2, TOPIC, ALL], names=["x"], documentation=True)
    assert list(found) == [BROKER_2, TOPIC, ALL]
    assert list(found[TOPIC]) == ["w", "x"]
    entry = found[TOPIC]["x"]
    assert (entry.source, entry.type, entry.is_default) == (ConfigSource.STATIC_BROKER, ConfigType.LONG, False)
    assert entry.synonyms == (api.Synonym("log.x", "1", ConfigSource.STATIC_BROKER),)
    # What a later version added is not known, and no reason to fail.
    assert (found[TOPIC]["w"].source, found[TOPIC]["w"].type) == (ConfigSource.UNKNOWN, ConfigType.UNKNOWN)
    assert [[each.resource_name for each in request.resources] for request in nodes[2].asked] == [["2"]]
    assert [[each.resource_name for each in request.resources] for request in nodes[1].asked] == [["orders", ""]]
    assert nodes[1].asked[0].resources[0].configuration_keys == ["x"]


def test_old_brokers_are_not_asked_for_what_they_cannot_tell() -> None:
    calls, nodes = pair(describe, api.DESCRIBE_CONFIGS, {api.DESCRIBE_CONFIGS: 0})
    calls.describe_configs([TOPIC], documentation=True).raise_for_errors()
    assert not nodes[1].asked[0].include_synonyms
    assert not nodes[1].asked[0].include_documentation


def test_changes_as_a_mapping_or_one_by_one() -> None:
    calls, nodes = pair(alter, api.INCREMENTAL_ALTER_CONFIGS)
    changes = {
        BROKER_2: {"a": "bad"},
        TOPIC: [ConfigChange("l", "v", Alter.APPEND), ConfigChange("s", "v")],
        ALL: {"b": "1", "c": None},
    }
    results = calls.alter_configs(changes)
    assert list(results) == [BROKER_2, TOPIC, ALL]
    assert isinstance(results.errors[BROKER_2], InvalidConfigError)
    assert (results[TOPIC], results[ALL]) == (None, None)
    (to_second,) = nodes[2].asked
    (to_controller,) = nodes[1].asked
    assert [each.resource_name for each in to_second.resources] == ["2"]
    assert [
        [(each.name, each.config_operation, each.value) for each in resource.configs]
        for resource in to_controller.resources
    ] == [[("l", 2, "v"), ("s", 0, "v")], [("b", 0, "1"), ("c", 1, None)]]


def test_what_makes_no_sense_is_said_before_anybody_is_asked() -> None:
    calls, nodes = pair(alter, api.INCREMENTAL_ALTER_CONFIGS)
    with pytest.raises(UserError, match="topic orders: nothing to change"):
        calls.alter_configs({TOPIC: {}})
    with pytest.raises(UserError, match="named by its id"):
        calls.alter_configs({ConfigResource(api.ResourceType.BROKER, "first"): {"a": "b"}})
    assert not nodes[1].asked
    assert [str(each) for each in (TOPIC, BROKER_2, ALL, ConfigResource.broker_logger(3))] == [
        "topic orders",
        "broker 2",
        "all brokers",
        "broker logger 3",
    ]
