"""DescribeLogDirs (api 35): data directories, the replicas in them, and how much room is left."""

from __future__ import annotations

from collections.abc import Generator

from braidlog.core.protocol_errors import NONE, KafkaStorageError, ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.net.exchange import Exchange
from braidlog.storage.dirs.log_directory import LogDirectory
from braidlog.storage.dirs.log_manager import LogManager
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

    def handle(
        self, request: DescribeLogDirsRequest, exchange: Exchange
    ) -> Generator[None, None, DescribeLogDirsResponse]:
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
