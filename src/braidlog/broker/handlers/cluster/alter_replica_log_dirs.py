"""AlterReplicaLogDirs (api 34): move replicas between this broker's data directories while they serve."""

from __future__ import annotations

from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.core.protocol_errors import NONE, ProtocolError, UnknownTopicOrPartitionError
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.dirs.replica_alter_log_dirs import ReplicaAlterLogDirs
from braidlog.wire.generated.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


class AlterReplicaLogDirsHandler:
    def __init__(self, logs: LogManager, moves: ReplicaAlterLogDirs) -> None:
        self._logs = logs
        self._moves = moves

    def handle(self, request: AlterReplicaLogDirsRequest, exchange: Exchange) -> AlterReplicaLogDirsResponse:
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
