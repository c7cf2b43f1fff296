"""The data directories of this broker: DescribeLogDirs, AlterReplicaLogDirs."""

from __future__ import annotations

from collections.abc import Generator

from braidlog.broker.authorization.authorizer import Authorizer
from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.core.protocol_errors import NONE, KafkaStorageError, ProtocolError, UnknownTopicOrPartitionError
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.security.acls import AclOperation
from braidlog.storage.dirs.log_directory import LogDirectory
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.dirs.replica_alter_log_dirs import ReplicaAlterLogDirs
from braidlog.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from braidlog.wire.generated.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


class DescribeLogDirsHandler:
    """DescribeLogDirs (api 35): data directories, the replicas in them, and how much room is left."""

    def __init__(self, logs: LogManager, authorizer: Authorizer) -> None:
        self._logs = logs
        self._authorizer = authorizer

    def handle(
        self, request: DescribeLogDirsRequest, exchange: Exchange
    ) -> Generator[None, None, DescribeLogDirsResponse]:
        self._authorizer.check_cluster(exchange, AclOperation.DESCRIBE)
        wanted: set[TopicPartition] | None = None
        if request.topics is not None:
            wanted = set()
            for topic in request.topics:
                for index in topic.partitions:
                    wanted.add(TopicPartition(topic.topic, index))
                    yield
        response = DescribeLogDirsResponse(results=[])
        for directory in self._logs.directories:
            response.results.append((yield from self._describe(directory, wanted)))
        return response

    def _describe(
        self, directory: LogDirectory, wanted: set[TopicPartition] | None
    ) -> Generator[None, None, DescribeLogDirsResult]:
        facts = directory.describe()
        topics: dict[str, DescribeLogDirsTopic] = {}
        if facts.failure is None:
            for replica in self._logs.registry.replicas_in(directory, wanted):
                name = replica.partition.topic
                topic = topics.get(name)
                if topic is None:
                    topic = topics[name] = DescribeLogDirsTopic(name=name, partitions=[])
                topic.partitions.append(
                    DescribeLogDirsPartition(
                        partition_index=replica.partition.partition,
                        partition_size=replica.size,
                        offset_lag=replica.offset_lag,
                        is_future_key=replica.is_future,
                    )
                )
                yield
        return DescribeLogDirsResult(
            error_code=NONE if facts.failure is None else KafkaStorageError.code,
            log_dir=facts.path,
            topics=list(topics.values()),
            total_bytes=facts.total_bytes,
            usable_bytes=facts.usable_bytes,
        )

    @staticmethod
    def error_response(request: DescribeLogDirsRequest, version: int, error: ProtocolError) -> DescribeLogDirsResponse:
        return DescribeLogDirsResponse(error_code=error.code)


class AlterReplicaLogDirsHandler:
    """AlterReplicaLogDirs (api 34): move replicas between this broker's data directories while they serve."""

    def __init__(self, logs: LogManager, moves: ReplicaAlterLogDirs, authorizer: Authorizer) -> None:
        self._logs = logs
        self._moves = moves
        self._authorizer = authorizer

    def handle(self, request: AlterReplicaLogDirsRequest, exchange: Exchange) -> AlterReplicaLogDirsResponse:
        self._authorizer.check_cluster(exchange, AclOperation.ALTER)
        results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                for index in topic.partitions:
                    results.setdefault(topic.name, []).append(
                        AlterReplicaLogDirPartitionResult(
                            partition_index=index,
                            error_code=self._move(TopicPartition(topic.name, index), directory.path),
                        )
                    )
        return _response(results)

    def _move(self, partition: TopicPartition, path: str) -> int:
        try:
            self._moves.start(partition, path)
            if self._logs.get(partition) is None:
                # The wish is kept for when the partition comes; until then it is not here.
                return UnknownTopicOrPartitionError.code
        except Exception as problem:
            return to_protocol_error(problem, f"moving {partition} to {path}").code
        return NONE

    @staticmethod
    def error_response(
        request: AlterReplicaLogDirsRequest, version: int, error: ProtocolError
    ) -> AlterReplicaLogDirsResponse:
        results: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
        for directory in request.dirs:
            for topic in directory.topics:
                results.setdefault(topic.name, []).extend(
                    AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error.code)
                    for index in topic.partitions
                )
        return _response(results)


def _response(results: dict[str, list[AlterReplicaLogDirPartitionResult]]) -> AlterReplicaLogDirsResponse:
    return AlterReplicaLogDirsResponse(
        results=[
            AlterReplicaLogDirTopicResult(topic_name=topic, partitions=partitions)
            for topic, partitions in results.items()
        ]
    )
