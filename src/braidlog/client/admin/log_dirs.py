"""The directories of brokers: what lies in them, how full they are, and moves from one to another (KIP-113)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from braidlog.client.admin.api_driver import AdminApiDriver
from braidlog.client.admin.cluster_call import BrokerConnection
from braidlog.client.admin.lookup_strategies import BrokerStrategy
from braidlog.client.admin.results import Results
from braidlog.client.arguments import Many, Partitions, listed, mapped, partitions_of
from braidlog.client.broker_errors import broker_error, check
from braidlog.core.protocol_errors import NONE, ProtocolError
from braidlog.core.types import TopicPartition, by_topic
from braidlog.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from braidlog.wire.generated.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)

ALTER_REPLICA_LOG_DIRS: Final = 34
DESCRIBE_LOG_DIRS: Final = 35


class Replica(NamedTuple):
    """A partition's copy on one broker."""

    topic: str
    partition: int
    broker_id: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id}"


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    size_bytes: int
    # How far the log lies behind: a copy that is being made behind the one in use, another behind the leader.
    offset_lag: int
    # A copy that is being made in this directory, and will take the place of that in another.
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    path: str
    # Why nothing of it can be used; None of one that works.
    error: ProtocolError | None
    replicas: Mapping[TopicPartition, ReplicaInfo]
    # None of brokers before 3.3.
    total_bytes: int | None
    usable_bytes: int | None


def describe_log_dirs(
    driver: AdminApiDriver, broker_ids: Many[int] | None = None, *, partitions: Partitions | None = None
) -> Results[int, tuple[LogDir, ...]]:
    topics = None
    if partitions is not None:
        topics = [
            DescribableLogDirTopic(topic=topic, partitions=each)
            for topic, each in by_topic(sorted(partitions_of(partitions))).items()
        ]
    request = DescribeLogDirsRequest(topics=topics)

    async def describe(node: BrokerConnection, some: list[int]) -> dict[int, tuple[LogDir, ...]]:
        answer = await node.call(DESCRIBE_LOG_DIRS, request, DescribeLogDirsResponse)
        check(answer.error_code, f"directories of broker {some[0]}")
        found = (_log_dir(each) for each in answer.results)
        return {some[0]: tuple(sorted(found, key=lambda each: each.path))}

    if broker_ids is not None:
        wanted = listed(broker_ids, "broker_ids")
    else:
        wanted = driver.broker_ids()
    return driver.ask(wanted, BrokerStrategy(lambda broker_id: broker_id), describe)


def alter_replica_log_dirs(driver: AdminApiDriver, targets: Mapping[Replica, str]) -> Results[Replica, None]:
    given = mapped(targets, "targets", '{Replica("orders", 0, 1): "/data"}')
    wanted = {Replica(*each): path for each, path in given.items()}

    async def alter(node: BrokerConnection, some: list[Replica]) -> dict[Replica, ProtocolError | None]:
        broker_id = some[0].broker_id
        by_path: dict[str, list[TopicPartition]] = {}
        for each in some:
            by_path.setdefault(wanted[each], []).append(each.place)
        request = AlterReplicaLogDirsRequest(
            dirs=[
                AlterReplicaLogDir(
                    path=path,
                    topics=[
                        AlterReplicaLogDirTopic(name=topic, partitions=numbers)
                        for topic, numbers in by_topic(sorted(places)).items()
                    ],
                )
                for path, places in by_path.items()
            ]
        )
        found: dict[Replica, ProtocolError | None] = {}
        for topic in (await node.call(ALTER_REPLICA_LOG_DIRS, request, AlterReplicaLogDirsResponse)).results:
            for answer in topic.partitions:
                replica = Replica(topic.topic_name, answer.partition_index, broker_id)
                failed = answer.error_code != NONE
                found[replica] = broker_error(answer.error_code, str(replica)) if failed else None
        return found

    return driver.ask(wanted, BrokerStrategy(lambda replica: replica.broker_id), alter)


def _log_dir(result: DescribeLogDirsResult) -> LogDir:
    return LogDir(
        path=result.log_dir,
        error=broker_error(result.error_code, result.log_dir) if result.error_code != NONE else None,
        replicas={
            TopicPartition(topic.name, each.partition_index): ReplicaInfo(
                each.partition_size, each.offset_lag, each.is_future_key
            )
            for topic in sorted(result.topics, key=lambda topic: topic.name)
            for each in sorted(topic.partitions, key=lambda each: each.partition_index)
        },
        total_bytes=result.total_bytes if result.total_bytes >= 0 else None,
        usable_bytes=result.usable_bytes if result.usable_bytes >= 0 else None,
    )
