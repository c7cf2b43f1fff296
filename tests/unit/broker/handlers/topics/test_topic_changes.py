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
    UnknownServerError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from braidlog.wire.generated.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from braidlog.wire.generated.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from braidlog.wire.generated.delete_topics import DeleteTopicsRequest, DeleteTopicState
from support.asked_broker import AskedBroker, on_broker
from support.many_items import MANY, NAMES, answer_of, exchange


class Obliging:
    """A controller that says yes to whatever is created."""

    image = ClusterImage()

    async def create_topics(self, requests: Sequence[NewTopic], validate_only: bool) -> list[NewTopicResult]:
        return [NewTopicResult(each.name, partitions=each.partitions, configs=each.configs) for each in requests]  # type: ignore[arg-type]


def test_very_many_are_created_in_order() -> None:
    controller: Any = Obliging()
    handler = CreateTopicsHandler(controller, DynamicBrokerSettings(BrokerSettings({})), Authorizer())
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES]
    twice = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("c", "b", "c", "b")]
    request = CreateTopicsRequest(topics=[*twice, *topics], timeout_ms=1000)
    answer = answer_of(handler.handle(request, exchange(5)))
    assert [topic.name for topic in answer.topics] == [*NAMES, "b", "c"]
    assert [topic.error_code for topic in answer.topics[MANY:]] == [InvalidRequestError.code] * 2
    assert {topic.error_code for topic in answer.topics[:MANY]} == {0}


def test_topics_with_the_same_overrides_are_described_alike_and_others_are_not() -> None:
    controller: Any = Obliging()
    handler = CreateTopicsHandler(controller, DynamicBrokerSettings(BrokerSettings({})), Authorizer())
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
