from __future__ import annotations

from braidlog.broker.handlers.cluster.alter_configs import AlterConfigsHandler, IncrementalAlterConfigsHandler
from braidlog.controller.requests import ConfigOperation, ResourceType
from braidlog.core.protocol_errors import InvalidConfigError, NotControllerError, UnknownTopicOrPartitionError
from braidlog.security.acls import AclOperation
from braidlog.wire.generated import alter_configs, incremental_alter_configs
from support.asked_broker import AskedBroker, on_broker
from support.authorized_broker import RestrictedBroker, allow_topic


def full(topic: str, **configs: str) -> alter_configs.AlterConfigsResource:
    entries = [alter_configs.AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return alter_configs.AlterConfigsResource(resource_type=ResourceType.TOPIC, resource_name=topic, configs=entries)


def change(topic: str, key: str, operation: int, value: str | None) -> incremental_alter_configs.AlterConfigsResource:
    entry = incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
    return incremental_alter_configs.AlterConfigsResource(
        resource_type=ResourceType.TOPIC, resource_name=topic, configs=[entry]
    )


def overrides(broker: AskedBroker, topic: str) -> dict[str, str]:
    return dict(broker.parts.controller.image.topic_config(topic))


@on_broker
async def test_a_full_change_replaces_all_overrides(broker: AskedBroker) -> None:
    await broker.create("t", retention_ms="1000", max_message_bytes="5000")
    request = alter_configs.AlterConfigsRequest(resources=[full("t", retention_ms="7"), full("gone", retention_ms="7")])
    answer = await broker.ask(request, 2)
    assert [each.error_code for each in answer.responses] == [0, UnknownTopicOrPartitionError.code]
    assert overrides(broker, "t") == {"retention.ms": "7"}


@on_broker
async def test_what_is_only_checked_changes_nothing(broker: AskedBroker) -> None:
    await broker.create("t")
    request = alter_configs.AlterConfigsRequest(
        resources=[full("t", retention_ms="7"), full("t2", retention_ms="no number")], validate_only=True
    )
    answer = await broker.ask(request, 2)
    assert answer.responses[0].error_code == 0
    assert answer.responses[1].error_code != 0
    assert overrides(broker, "t") == {}


@on_broker
async def test_an_incremental_change_leaves_the_others(broker: AskedBroker) -> None:
    await broker.create("t", retention_ms="1000", max_message_bytes="5000")
    request = incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[change("t", "retention.ms", ConfigOperation.DELETE, None)]
    )
    assert [each.error_code for each in (await broker.ask(request, 1)).responses] == [0]
    assert overrides(broker, "t") == {"max.message.bytes": "5000"}
    request.resources = [change("t", "retention.ms", ConfigOperation.SET, "no number")]
    (refused,) = (await broker.ask(request, 1)).responses
    assert refused.error_code == InvalidConfigError.code
    assert "retention.ms" in refused.error_message


def test_a_failure_is_told_for_each_resource() -> None:
    error = NotControllerError("ask another")
    answer = AlterConfigsHandler.error_response(
        alter_configs.AlterConfigsRequest(resources=[full("a"), full("b")]), 2, error
    )
    assert [(each.resource_name, each.error_code) for each in answer.responses] == [
        ("a", error.code),
        ("b", error.code),
    ]
    more = IncrementalAlterConfigsHandler.error_response(
        incremental_alter_configs.IncrementalAlterConfigsRequest(
            resources=[change("a", "k", ConfigOperation.SET, "v")]
        ),
        1,
        error,
    )
    assert [each.error_message for each in more.responses] == ["ask another"]


@on_broker
async def test_only_what_may_be_altered_is(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    for name in ("mine", "not"):
        await restricted.admin.create(name)
    restricted.rules(allow_topic("mine", AclOperation.ALTER_CONFIGS))
    for api, value in (("AlterConfigs", "60000"), ("IncrementalAlterConfigs", "70000")):
        resources = [
            {"resource_type": kind, "resource_name": name, "configs": [{"name": "retention.ms", "value": value}]}
            for kind, name in ((ResourceType.TOPIC, "not"), (ResourceType.TOPIC, "mine"), (ResourceType.BROKER, "1"))
        ]
        answer = await restricted.ask(api, 1, resources=resources)
        assert answer == "[1 CLUSTER_AUTHORIZATION_FAILED, mine, not TOPIC_AUTHORIZATION_FAILED]"
        image = broker.parts.metadata_cache.image
        assert (image.topic_config("mine"), image.topic_config("not")) == ({"retention.ms": value}, {})
