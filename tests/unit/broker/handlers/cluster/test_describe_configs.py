from __future__ import annotations

from typing import Any

from braidlog.broker.handlers.cluster.describe_configs import DescribeConfigsHandler
from braidlog.controller.requests import ResourceType
from braidlog.core.protocol_errors import (
    InvalidRequestError,
    InvalidTopicError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from support.asked_broker import AskedBroker, on_broker
from support.authorized_broker import RestrictedBroker, allow_cluster, allow_topic

TOPIC_CONFIG, DEFAULT_CONFIG = 1, 5


async def described(broker: AskedBroker, kind: int, name: str, keys: list[str] | None = None, **options: bool) -> Any:
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    return (await broker.ask(DescribeConfigsRequest(resources=[resource], **options), 4)).results[0]  # type: ignore[arg-type]


@on_broker
async def test_a_topics_settings_have_their_sources(broker: AskedBroker) -> None:
    await broker.create("t", retention_ms="1000")
    result = await described(broker, ResourceType.TOPIC, "t", include_synonyms=True)
    configs = {config.name: config for config in result.configs}
    assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("1000", TOPIC_CONFIG)
    assert configs["max.message.bytes"].config_source == DEFAULT_CONFIG
    assert configs["retention.ms"].synonyms[0].name == "retention.ms"
    assert configs["retention.ms"].documentation is None


@on_broker
async def test_only_the_keys_that_were_asked_for_and_an_empty_list_means_all(broker: AskedBroker) -> None:
    await broker.create("t")
    some = await described(broker, ResourceType.TOPIC, "t", ["retention.ms", "unknown"], include_documentation=True)
    assert [config.name for config in some.configs] == ["retention.ms"]
    assert some.configs[0].documentation
    assert some.configs[0].synonyms == []
    every = await described(broker, ResourceType.TOPIC, "t", [])
    assert len(every.configs) > 20


@on_broker
async def test_this_broker_its_defaults_and_groups(broker: AskedBroker) -> None:
    for kind, name in ((ResourceType.BROKER, "1"), (ResourceType.GROUP, "g"), (ResourceType.BROKER_LOGGER, "1")):
        result = await described(broker, kind, name)
        assert (result.error_code, bool(result.configs)) == (0, True)
    assert (await described(broker, ResourceType.BROKER, "")).error_code == 0
    assert (await described(broker, ResourceType.CLIENT_METRICS, "m")).configs == []


@on_broker
async def test_what_cannot_be_described(broker: AskedBroker) -> None:
    for kind, name, error in (
        (ResourceType.TOPIC, "gone", UnknownTopicOrPartitionError),
        (ResourceType.TOPIC, "no/name", InvalidTopicError),
        (ResourceType.BROKER, "2", InvalidRequestError),
        (ResourceType.GROUP, "", InvalidRequestError),
        (99, "x", InvalidRequestError),
    ):
        result = await described(broker, kind, name)
        assert (result.error_code, result.configs) == (error.code, [])
        assert result.error_message


@on_broker
async def test_a_resource_that_is_named_again_is_described_once(broker: AskedBroker) -> None:
    resource = DescribeConfigsResource(resource_type=ResourceType.BROKER, resource_name="1")
    answer = await broker.ask(DescribeConfigsRequest(resources=[resource, resource]), 4)
    assert len(answer.results) == 1


def test_a_failure_is_told_for_each_resource() -> None:
    request = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=2, resource_name="t")])
    (result,) = DescribeConfigsHandler.error_response(request, 4, UnknownServerError("oh")).results
    assert (result.resource_name, result.error_code) == ("t", UnknownServerError.code)


@on_broker
async def test_each_resource_is_described_to_who_may_see_it(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    await restricted.admin.create("mine")
    resources = [
        {"resource_type": kind, "resource_name": name, "configuration_keys": None}
        for kind, name in ((ResourceType.TOPIC, "mine"), (ResourceType.TOPIC, "not"), (ResourceType.BROKER, "1"))
    ]
    restricted.rules(allow_topic("mine", AclOperation.DESCRIBE_CONFIGS))
    answer = await restricted.ask("DescribeConfigs", 4, resources=resources)
    assert answer == "[1 CLUSTER_AUTHORIZATION_FAILED, mine, not TOPIC_AUTHORIZATION_FAILED]"
    restricted.rules(allow_cluster(AclOperation.DESCRIBE_CONFIGS))
    answer = await restricted.ask("DescribeConfigs", 4, resources=resources)
    assert answer == "[1, mine TOPIC_AUTHORIZATION_FAILED, not TOPIC_AUTHORIZATION_FAILED]"
