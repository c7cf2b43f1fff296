"""Which replica lies in which data directory: what the log manager knows of them, without any effect on disk."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from braidlog.core.errors import FatalError, StorageFault
from braidlog.core.protocol_errors import KafkaStorageError, LogDirNotFoundError, UnknownTopicOrPartitionError
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.log_directory import LogDirectory
from braidlog.storage.log.unified_log import UnifiedLog


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log's directory, and what the checkpoints say of it."""

    path: str
    partition: TopicPartition
    start_offset: int
    recovery_point: int
    high_watermark: int


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """What DescribeLogDirs says of one replica."""

    partition: TopicPartition
    size: int
    # Current replica: how far it is behind the high watermark. Future one: how far behind the current one.
    offset_lag: int
    is_future: bool


class LogRegistry:
    """A partition is current in one directory, or offline with a reason, or not here; a future may be beside it."""

    def __init__(self, directories: Sequence[LogDirectory]) -> None:
        self.directories = list(directories)
        self.logs: dict[TopicPartition, UnifiedLog] = {}
        # Replicas that are being copied to another directory.
        self.future_logs: dict[TopicPartition, UnifiedLog] = {}
        self.offline: dict[TopicPartition, str] = {}
        # Logs that start-up could not open for want of room.
        self.unopened: dict[TopicPartition, FoundLog] = {}
        self.topic_ids: dict[TopicPartition, bytes] = {}
        # Called before a log is closed for good, so that all work on it can stop.
        self.on_log_removal: list[Callable[[TopicPartition], None]] = []
        # Called when a replica was moved to another directory: from now on this log is the partition's.
        self.on_log_moved: list[Callable[[TopicPartition, UnifiedLog], None]] = []
        # Called when retention dropped the first segments of a log.
        self.on_log_start_moved: list[Callable[[TopicPartition], None]] = []
        self._directory_of: dict[TopicPartition, LogDirectory] = {}

    # --- logs
    def add(self, partition: TopicPartition, log: UnifiedLog, directory: LogDirectory) -> None:
        self.logs[partition] = log
        self._directory_of[partition] = directory
        directory.partition_count += 1

    def remove(self, partition: TopicPartition) -> UnifiedLog:
        log = self.logs.pop(partition)
        self._directory_of.pop(partition).partition_count -= 1
        return log

    def add_future(self, partition: TopicPartition, log: UnifiedLog) -> None:
        self.future_logs[partition] = log
        self.directory_at(log.directory).partition_count += 1

    def remove_future(self, partition: TopicPartition) -> UnifiedLog | None:
        future = self.future_logs.pop(partition, None)
        if future is not None:
            self.directory_at(future.directory).partition_count -= 1
        return future

    def notify_log_removal(self, partition: TopicPartition) -> None:
        for listener in self.on_log_removal:
            listener(partition)

    def require(self, partition: TopicPartition) -> UnifiedLog:
        """The current replica; raises KAFKA_STORAGE_ERROR where its directory failed."""
        log = self.logs.get(partition)
        if log is None:
            self.require_not_offline(partition)
            raise UnknownTopicOrPartitionError(f"no replica of {partition} here")
        return log

    def require_not_offline(self, partition: TopicPartition) -> None:
        reason = self.offline.get(partition)
        if reason is not None:
            raise KafkaStorageError(f"{partition} is offline: {reason}")

    # --- directories
    @property
    def online_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if directory.is_online]

    def directory_of(self, partition: TopicPartition) -> LogDirectory:
        return self._directory_of[partition]

    def directory_named(self, path: str) -> LogDirectory:
        wanted = path.rstrip("/") or "/"
        for directory in self.directories:
            if directory.path == wanted:
                return directory
        raise LogDirNotFoundError(f"{path} is not in log.dirs")

    def directory_at(self, path: str) -> LogDirectory:
        """The data directory that is, or holds, `path`."""
        for directory in self.directories:
            if directory.holds(path):
                return directory
        raise LogDirNotFoundError(f"{path} is not in log.dirs")

    def emptiest_directory(self) -> LogDirectory:
        if not self.online_directories:
            raise KafkaStorageError("no data directory is online")
        return min(self.online_directories, key=lambda directory: directory.partition_count)

    def logs_in(self, directory: LogDirectory) -> dict[TopicPartition, UnifiedLog]:
        return {p: log for p, log in self.logs.items() if self._directory_of[p] is directory}

    def future_logs_in(self, directory: LogDirectory) -> dict[TopicPartition, UnifiedLog]:
        return {p: future for p, future in self.future_logs.items() if directory.holds(future.directory)}

    def unopened_in(self, directory: LogDirectory) -> dict[TopicPartition, FoundLog]:
        return {p: found for p, found in self.unopened.items() if directory.holds(found.path)}

    def replicas_in(
        self, directory: LogDirectory, wanted: Collection[TopicPartition] | None = None
    ) -> Iterator[ReplicaInfo]:
        """All replicas of a directory or only the wanted ones, each as it is when its turn comes."""
        for partition, log in self.logs_in(directory).items():
            if wanted is None or partition in wanted:
                lag = max(log.high_watermark - log.log_end_offset, 0)
                yield ReplicaInfo(partition, log.size, lag, False)
        for partition, future in self.future_logs_in(directory).items():
            if wanted is None or partition in wanted:
                current = self.logs.get(partition)
                lag = max(current.log_end_offset - future.log_end_offset, 0) if current is not None else 0
                yield ReplicaInfo(partition, future.size, lag, True)

    def take_offline(
        self, directory: LogDirectory, fault: StorageFault
    ) -> tuple[dict[TopicPartition, UnifiedLog], list[UnifiedLog]]:
        """Mark the directory failed and drop its logs; returns them (current ones by partition, futures)."""
        directory.fail(fault)
        lost = self.logs_in(directory)
        for partition in lost:
            self.remove(partition)
            self.offline[partition] = fault.reason
        for partition in self.unopened_in(directory):
            del self.unopened[partition]
            self.offline[partition] = fault.reason
        futures = self.future_logs_in(directory)
        for partition in futures:
            self.remove_future(partition)
        return lost, list(futures.values())

    def require_one_directory(self) -> None:
        if not self.online_directories:
            reasons = "; ".join(f"{d.path}: {d.failure}" for d in self.directories)
            raise FatalError(
                f"all data directories have failed, nothing is left to serve ({reasons}); each has to be a directory "
                "that this user may write to, on a disk with room (--data or log.dirs names another)"
            )

    def clear(self) -> None:
        self.logs.clear()
        self.future_logs.clear()
        self.unopened.clear()
        self._directory_of.clear()
