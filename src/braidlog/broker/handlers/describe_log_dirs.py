"""DescribeLogDirs (api 35): data directories, the replicas in them, and how much room is left."""

from __future__ import annotations

from braidlog.core.protocol_errors import NONE, KafkaStorageError, ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.storage.descriptions import DirectoryFacts, describe_directories
from braidlog.storage.manager import LogManager
from braidlog.wire.generated.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


class DescribeLogDirsHandler:
    def __init__(self, logs: LogManager) -> None:
        self._logs = logs

    def handle(self, request: DescribeLogDirsRequest, exchange: Exchange) -> DescribeLogDirsResponse:
        wanted: set[TopicPartition] | None = None
        if request.topics is not None:
            wanted = {TopicPartition(topic.topic, index) for topic in request.topics for index in topic.partitions}
        return DescribeLogDirsResponse(results=[_result(facts) for facts in describe_directories(self._logs, wanted)])


def _result(facts: DirectoryFacts) -> DescribeLogDirsResult:
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for replica in facts.replicas:
        topics.setdefault(replica.partition.topic, []).append(
            DescribeLogDirsPartition(
                partition_index=replica.partition.partition,
                partition_size=replica.size,
                offset_lag=replica.offset_lag,
                is_future_key=replica.is_future,
            )
        )
    return DescribeLogDirsResult(
        error_code=NONE if facts.failure is None else KafkaStorageError.code,
        log_dir=facts.path,
        topics=[DescribeLogDirsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=facts.total_bytes,
        usable_bytes=facts.usable_bytes,
    )


def refuse(request: DescribeLogDirsRequest, version: int, error: ProtocolError) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(error_code=error.code)
