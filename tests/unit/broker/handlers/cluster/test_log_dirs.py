from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import pytest

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.handlers.cluster.log_dirs import AlterReplicaLogDirsHandler, DescribeLogDirsHandler
from braidlog.core.protocol_errors import LogDirNotFoundError, UnknownTopicOrPartitionError
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.log_directory import LogDirDescription
from braidlog.storage.dirs.log_registry import ReplicaInfo
from braidlog.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from braidlog.wire.generated.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from support.asked_broker import AskedBroker, on_broker, on_broker_with
from support.many_items import exchange


def test_very_many_replicas_are_described_in_slices() -> None:
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
        work = DescribeLogDirsHandler(manager, Authorizer()).handle(DescribeLogDirsRequest(topics=topics), exchange(4))
        for _ in range(steps):
            next(work)
        with pytest.raises(StopIteration) as end:
            next(work)
        (result,) = end.value.value.results
        found = [(topic.name, [each.partition_index for each in topic.partitions]) for topic in result.topics]
        assert found == reported


@on_broker
async def test_directories_have_their_replicas_and_room(broker: AskedBroker) -> None:
    await broker.create("t", 2)
    (result,) = (await broker.ask(DescribeLogDirsRequest(topics=None), 4)).results
    assert (result.error_code, result.log_dir) == (0, "/data")
    assert result.total_bytes >= result.usable_bytes > 0
    (topic,) = [each for each in result.topics if each.name == "t"]
    assert sorted(each.partition_index for each in topic.partitions) == [0, 1]


@on_broker_with({"log.dirs": "/data,/more"})
async def test_replicas_move_between_directories(broker: AskedBroker) -> None:
    await broker.create("t")
    held = broker.parts.logs.registry.directory_of(TopicPartition("t", 0)).path
    other = "/more" if held == "/data" else "/data"

    def move(path: str, topic: str) -> AlterReplicaLogDirsRequest:
        wanted = AlterReplicaLogDirTopic(name=topic, partitions=[0])
        return AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[wanted])])

    for path, topic, error in (
        (other, "t", 0),
        ("/nowhere", "t", LogDirNotFoundError.code),
        (other, "gone", UnknownTopicOrPartitionError.code),
    ):
        (result,) = (await broker.ask(move(path, topic), 2)).results
        assert (result.topic_name, [each.error_code for each in result.partitions]) == (topic, [error])


def test_a_failure_is_told_for_each_replica() -> None:
    topics = [AlterReplicaLogDirTopic(name="t", partitions=[0, 1])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path="/data", topics=topics)])
    (result,) = AlterReplicaLogDirsHandler.error_response(request, 2, LogDirNotFoundError("x")).results
    assert [each.error_code for each in result.partitions] == [LogDirNotFoundError.code] * 2
