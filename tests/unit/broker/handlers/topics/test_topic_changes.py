from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.broker.handlers.topics.topic_changes import (
    CreatePartitionsHandler,
    CreateTopicsHandler,
    DeleteTopicsHandler,
)
from braidlog.cluster.image import ClusterImage
from braidlog.config.broker import BrokerSettings
from braidlog.controller.requests import NewTopic, NewTopicResult
from braidlog.core.protocol_errors import (
    InvalidPartitionsError,
    InvalidRequestError,
    TopicAuthorizationFailedError,
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from braidlog.security.acls import AclOperation
from braidlog.wire.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from braidlog.wire.generated.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from support.asked_broker import AskedBroker, on_broker
from support.authorized_broker import RestrictedBroker, allow_cluster, allow_topic
from support.many_items import MANY, NAMES, answer_of, exchange


class Obliging:
    """A controller that says yes to whatever is created."""

    image = ClusterImage()

    async def create_topics(self, requests: Sequence[NewTopic], validate_only: bool) -> list[NewTopicResult]:
        return [NewTopicResult(each.name, partitions=each.partitions, configs=each.configs) for each in requests]  # type: ignore[arg-type]


def unlimited() -> Any:
    class NoQuotas:
        def of(self, exchange: Any) -> None:
            return None

    return NoQuotas()


def test_very_many_are_created_in_order() -> None:
    controller: Any = Obliging()
    handler = CreateTopicsHandler(controller, DynamicBrokerSettings(BrokerSettings({})), Authorizer(), unlimited())
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES]
    twice = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("c", "b", "c", "b")]
    request = CreateTopicsRequest(topics=[*twice, *topics], timeout_ms=1000)
    answer = answer_of(handler.handle(request, exchange(5)))
    assert [topic.name for topic in answer.topics] == [*NAMES, "b", "c"]
    assert [topic.error_code for topic in answer.topics[MANY:]] == [InvalidRequestError.code] * 2
    assert {topic.error_code for topic in answer.topics[:MANY]} == {0}


def test_topics_with_the_same_overrides_are_described_alike_and_others_are_not() -> None:
    controller: Any = Obliging()
    handler = CreateTopicsHandler(controller, DynamicBrokerSettings(BrokerSettings({})), Authorizer(), unlimited())
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="retention.ms", value=value)],
        )
        for name, value in [("a", "1000"), ("b", "2000"), ("c", "1000")]
    ]
    request = CreateTopicsRequest(topics=topics, timeout_ms=1000)
    answer = asyncio.run(handler.handle(request, exchange(5)))
    reported = [{config.name: config.value for config in topic.configs or []} for topic in answer.topics]
    assert [configs["retention.ms"] for configs in reported] == ["1000", "2000", "1000"]


def grown(name: str, count: int) -> CreatePartitionsTopic:
    return CreatePartitionsTopic(name=name, count=count, assignments=None)


@on_broker
async def test_topics_come_grow_and_go(broker: AskedBroker) -> None:
    topic_id = await broker.create("t")
    grow = CreatePartitionsRequest(topics=[grown("t", 3), grown("gone", 3)], timeout_ms=1000)
    answer = await broker.ask(grow, 3)
    codes = {each.name: each.error_code for each in answer.results}
    assert codes == {"t": 0, "gone": UnknownTopicOrPartitionError.code}
    answer = await broker.ask(CreatePartitionsRequest(topics=[grown("t", 3)]), 3)
    assert answer.results[0].error_code == InvalidPartitionsError.code
    delete = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic_id)], timeout_ms=1000)
    (result,) = (await broker.ask(delete, 6)).responses
    assert (result.name, result.error_code) == ("t", 0)
    (again,) = (await broker.ask(delete, 6)).responses
    assert again.error_code == UnknownTopicIdError.code
    (by_name,) = (await broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)).responses
    assert by_name.error_code == UnknownTopicOrPartitionError.code


@pytest.mark.parametrize("version", [5, 6])
def test_a_failure_is_told_for_each_topic(version: int) -> None:
    error = UnknownServerError("oh")
    created = CreateTopicsHandler.error_response(CreateTopicsRequest(topics=[CreatableTopic(name="a")]), 5, error)
    assert [(each.name, each.error_code) for each in created.topics] == [("a", error.code)]
    larger = CreatePartitionsHandler.error_response(
        CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="a", count=1)]), 3, error
    )
    assert [(each.name, each.error_message) for each in larger.results] == [("a", "oh")]
    named = DeleteTopicsRequest(topic_names=["a"], topics=[DeleteTopicState(name="a")])
    deleted = DeleteTopicsHandler.error_response(named, version, error)
    assert [(each.name, each.error_code) for each in deleted.responses] == [("a", error.code)]


@on_broker
async def test_only_topics_that_may_be_created_are(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    restricted.rules(allow_topic("mine", AclOperation.CREATE))
    topics = [{"name": name, "num_partitions": 2, "replication_factor": 1} for name in ("mine", "not", "two", "two")]
    hidden = "configs TOPIC_AUTHORIZATION_FAILED"
    answer = await restricted.ask("CreateTopics", 7, topics=topics, timeout_ms=1000)
    refused = f"not TOPIC_AUTHORIZATION_FAILED {hidden}"
    assert answer == f"[mine {hidden}, {refused}, two INVALID_REQUEST {hidden}]"
    assert list(broker.parts.metadata_cache.image.topics) == ["mine"]


@on_broker
async def test_configs_are_shown_to_who_may_see_them(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    restricted.rules(allow_cluster(AclOperation.CREATE), allow_topic("seen", AclOperation.DESCRIBE_CONFIGS))
    topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in ("seen", "unseen")]
    answer = await restricted.alice.ask(CreateTopicsRequest(topics=topics, timeout_ms=1000), 7)
    seen, unseen = answer.topics
    assert (seen.topic_config_error_code, seen.num_partitions, bool(seen.configs)) == (0, 2, True)
    refused = TopicAuthorizationFailedError.code
    assert (unseen.error_code, unseen.topic_config_error_code) == (0, refused)
    assert (unseen.num_partitions, unseen.replication_factor, unseen.configs) == (-1, -1, [])


@on_broker
async def test_only_topics_that_may_be_altered_grow(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    await restricted.admin.create("mine")
    await restricted.admin.create("not")
    restricted.rules(allow_topic("mine", AclOperation.ALTER))
    topics = [{"name": name, "count": 3, "assignments": None} for name in ("not", "mine", "two", "two")]
    answer = await restricted.ask("CreatePartitions", 3, topics=topics, timeout_ms=1000)
    assert answer == "[mine, not TOPIC_AUTHORIZATION_FAILED, two INVALID_REQUEST, two INVALID_REQUEST]"
    image = broker.parts.metadata_cache.image
    assert [len(image.topic(name).partitions) for name in ("mine", "not")] == [3, 1]


@on_broker
async def test_only_topics_that_may_be_deleted_are_and_ids_do_not_tell_names(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    ids = {name: await restricted.admin.create(name) for name in ("gone", "hidden", "kept", "seen")}
    restricted.rules(
        allow_topic("gone", AclOperation.DELETE), allow_topic("seen", AclOperation.DESCRIBE),
        allow_topic("unknown", AclOperation.DELETE),
    )  # fmt: skip
    refused = "TOPIC_AUTHORIZATION_FAILED"
    topics = [{"name": None, "topic_id": topic_id} for topic_id in (ids["gone"], ids["hidden"], ids["seen"], b"u" * 16)]
    topics += [{"name": "kept"}, {"name": "unknown"}]
    answer = await restricted.ask("DeleteTopics", 6, topics=topics, timeout_ms=1000)
    assert answer == (
        f"[{refused}, UNKNOWN_TOPIC_ID, gone, kept {refused}, seen {refused}, unknown UNKNOWN_TOPIC_OR_PARTITION]"
    )
    assert sorted(broker.parts.metadata_cache.image.topics) == ["hidden", "kept", "seen"]


@on_broker
async def test_who_is_not_the_controller_says_so_whatever_the_client_may_do(broker: AskedBroker) -> None:
    restricted = RestrictedBroker(broker)
    await restricted.admin.create("there")
    broker.parts.controller.session_lost()
    new = {"name": "new", "num_partitions": 1, "replication_factor": 1}
    assert await restricted.ask("CreateTopics", 7, topics=[new], timeout_ms=1000) == "[new NOT_CONTROLLER]"
    more = {"name": "there", "count": 2, "assignments": None}
    assert await restricted.ask("CreatePartitions", 3, topics=[more], timeout_ms=1000) == "[there NOT_CONTROLLER]"
    gone = [{"name": "there"}]
    assert await restricted.ask("DeleteTopics", 6, topics=gone, timeout_ms=1000) == "[there NOT_CONTROLLER]"
