"""Requests that list very many things: the same answers as ever, in order, while others are served in between."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Iterator, Sequence
from typing import Any

import pytest

from braidlog.broker.dynamic_settings import DynamicBrokerSettings
from braidlog.broker.handlers.cluster.log_dirs import DescribeLogDirsHandler
from braidlog.broker.handlers.groups.group_administration import DeleteGroupsHandler
from braidlog.broker.handlers.topics.topic_changes import CreateTopicsHandler
from braidlog.broker.handlers.transactions.describe_transactions import DescribeTransactionsHandler
from braidlog.config.broker import BrokerSettings
from braidlog.controller.requests import NewTopic, NewTopicResult
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.clock import SystemClock
from braidlog.core.protocol_errors import InvalidRequestError, NotCoordinatorError
from braidlog.core.tasks import Tasks
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.log_directory import LogDirDescription
from braidlog.storage.dirs.log_registry import ReplicaInfo
from braidlog.wire.generated.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from braidlog.wire.generated.delete_groups import DeleteGroupsRequest
from braidlog.wire.generated.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from braidlog.wire.generated.describe_transactions import DescribeTransactionsRequest

MANY = 20_000
NAMES = [f"name-{number}" for number in range(MANY)]


def answer_of(handling: Coroutine[Any, Any, Any]) -> Any:
    """The answer, for which others must not have had to wait."""
    turns = 0
    answers: list[Any] = []

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def run() -> None:
        counting = asyncio.ensure_future(others())
        await asyncio.sleep(0)
        # Not returned: asyncio.run would make a text of what the task returns.
        answers.append(await handling)
        counting.cancel()

    asyncio.run(run())
    assert turns > 5
    return answers[0]


def exchange(version: int) -> Any:
    class AnExchange:
        pass

    made: Any = AnExchange()
    made.version = version
    return made


def nobodys_coordinator() -> Any:
    """It leads no partition, and so answers at once."""
    logs: Any = None
    make_shard: Any = None
    return CoordinatorRuntime("topic", logs, make_shard, lambda: 50, SystemClock(), Tasks("test"))


class Obliging:
    """A controller that says yes to whatever is created."""

    async def create_topics(self, requests: Sequence[NewTopic], validate_only: bool) -> list[NewTopicResult]:
        return [NewTopicResult(each.name, partitions=each.partitions, configs=each.configs) for each in requests]  # type: ignore[arg-type]


def test_delete_groups() -> None:
    handler = DeleteGroupsHandler(nobodys_coordinator())
    answer = answer_of(handler.handle(DeleteGroupsRequest(groups_names=[*NAMES, NAMES[0]]), exchange(2)))
    assert [result.group_id for result in answer.results] == NAMES
    assert {result.error_code for result in answer.results} == {NotCoordinatorError.code}


def test_describe_transactions() -> None:
    handler = DescribeTransactionsHandler(nobodys_coordinator())
    answer = answer_of(handler.handle(DescribeTransactionsRequest(transactional_ids=NAMES), exchange(0)))
    assert [state.transactional_id for state in answer.transaction_states] == NAMES
    assert {state.error_code for state in answer.transaction_states} == {NotCoordinatorError.code}


def test_create_topics() -> None:
    controller: Any = Obliging()
    handler = CreateTopicsHandler(controller, DynamicBrokerSettings(BrokerSettings({})))
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in NAMES]
    twice = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in ("c", "b", "c", "b")]
    request = CreateTopicsRequest(topics=[*twice, *topics], timeout_ms=1000)
    answer = answer_of(handler.handle(request, exchange(5)))
    assert [topic.name for topic in answer.topics] == [*NAMES, "b", "c"]
    assert [topic.error_code for topic in answer.topics[MANY:]] == [InvalidRequestError.code] * 2
    assert {topic.error_code for topic in answer.topics[:MANY]} == {0}


def test_describe_log_dirs() -> None:
    class Registry:
        @staticmethod
        def replicas_in(directory: object, wanted: Collection[TopicPartition] | None) -> Iterator[ReplicaInfo]:
            for partition in (TopicPartition(topic, index) for index in range(500) for topic in "ba"):
                if wanted is None or partition in wanted:
                    yield ReplicaInfo(partition, 100, 0, False)

    class Directory:
        @staticmethod
        def describe() -> LogDirDescription:
            return LogDirDescription("/data", None, 1000, 500)

    class Manager:
        directories = (Directory(),)
        registry = Registry()

    manager: Any = Manager()
    named = DescribableLogDirTopic(topic="a", partitions=[*range(100), 9999])
    for topics, steps, reported in [
        (None, 1000, [("b", list(range(500))), ("a", list(range(500)))]),
        ([named], 201, [("a", list(range(100)))]),
    ]:
        work = DescribeLogDirsHandler(manager).handle(DescribeLogDirsRequest(topics=topics), exchange(4))
        for _ in range(steps):
            next(work)
        with pytest.raises(StopIteration) as end:
            next(work)
        (result,) = end.value.value.results
        found = [(topic.name, [each.partition_index for each in topic.partitions]) for topic in result.topics]
        assert found == reported


def test_topics_with_the_same_overrides_are_described_alike_and_others_are_not() -> None:
    controller: Any = Obliging()
    handler = CreateTopicsHandler(controller, DynamicBrokerSettings(BrokerSettings({})))
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
