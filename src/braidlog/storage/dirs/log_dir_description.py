"""What DescribeLogDirs tells: how full each data directory is and which replicas lie there."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from braidlog.core.errors import StorageFault
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.log_directory import LogDirectory
from braidlog.storage.dirs.log_manager import LogManager


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    partition: TopicPartition
    size: int
    # Current replica: how far it is behind the high watermark. Future one: how far behind the current one.
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    path: str
    # Why it is offline; then the rest is unknown.
    failure: str | None
    total_bytes: int = -1
    usable_bytes: int = -1


def describe_directory(directory: LogDirectory) -> LogDirDescription:
    if not directory.is_online:
        return LogDirDescription(directory.path, directory.failure)
    try:
        usage = directory.disk_usage()
    except StorageFault as fault:
        return LogDirDescription(directory.path, fault.reason)
    return LogDirDescription(directory.path, None, usage.total, usage.free)


def replicas_in(
    manager: LogManager, directory: LogDirectory, wanted: Collection[TopicPartition] | None = None
) -> Iterator[ReplicaInfo]:
    """All replicas of a directory or only the wanted ones, each as it is when its turn comes."""
    registry = manager.registry
    for partition, log in registry.logs_in(directory).items():
        if wanted is None or partition in wanted:
            lag = max(log.high_watermark - log.log_end_offset, 0)
            yield ReplicaInfo(partition, log.size, lag, False)
    for partition, future in registry.future_logs_in(directory).items():
        if wanted is None or partition in wanted:
            current = registry.logs.get(partition)
            lag = max(current.log_end_offset - future.log_end_offset, 0) if current is not None else 0
            yield ReplicaInfo(partition, future.size, lag, True)
