"""Opens the logs of the data directories, at start-up all of them, each directory in its own executor.

After a clean stop the checkpoints are trusted and opening a log costs a few system calls; after a crash only what lies
past a log's recovery point is read again. One log that is beyond repair, or that a full disk keeps from being opened
yet, does not keep the others from serving.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, field
from random import Random
from typing import Final

from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import Clock
from braidlog.core.errors import CorruptLogError, StorageFault, is_disk_full
from braidlog.core.protocol_errors import KafkaStorageError
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.directory_names import DirectoryKind, marked_name, parse_directory_name
from braidlog.storage.dirs.log_deletion import LogDeletion
from braidlog.storage.dirs.log_dir_failures import LogDirFailureHandler
from braidlog.storage.dirs.log_directory import LogDirectory
from braidlog.storage.dirs.log_registry import FoundLog, LogRegistry
from braidlog.storage.dirs.offset_checkpoint_file import HIGH_WATERMARKS, RECOVERY_POINTS, START_OFFSETS, Offsets
from braidlog.storage.dirs.partition_metadata_file import FILE_NAME, read_topic_id
from braidlog.storage.dirs.text_files import disk_faults
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.log.unified_log import RecoveryProgress, UnifiedLog

_log = logging.getLogger(__name__)

# Logs opened per task: few enough to keep all threads busy, many enough to make hand-over cheap.
_LOGS_PER_TASK: Final = 64


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """`partition` is set while a single log is being recovered: its bytes so far and in all."""

    directory: str
    logs_done: int
    logs_total: int
    recovered_bytes: int
    partition: TopicPartition | None = None
    partition_bytes_done: int = 0
    partition_bytes_total: int = 0


ReportProgress = Callable[[LoadProgress], None]


@dataclass
class _LoadedDirectory:
    """What was found; paths of `-delete` directories wait to be removed, `-stray` ones are left alone."""

    directory: LogDirectory
    logs: dict[TopicPartition, UnifiedLog] = field(default_factory=dict)
    future_logs: dict[TopicPartition, UnifiedLog] = field(default_factory=dict)
    topic_ids: dict[TopicPartition, bytes] = field(default_factory=dict)
    to_delete: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)
    # Logs that cannot be opened although the disk works, with the reason.
    broken: dict[TopicPartition, str] = field(default_factory=dict)
    # Logs that can be opened once there is room.
    unopened: dict[TopicPartition, FoundLog] = field(default_factory=dict)
    recovered_bytes: int = 0


@dataclass
class LoadReport:
    logs: int = 0
    recovered_bytes: int = 0
    clean: bool = True
    broken: dict[TopicPartition, str] = field(default_factory=dict)
    strays: list[str] = field(default_factory=list)
    checkpoint_problems: list[str] = field(default_factory=list)


class LogDirLoader:
    """Opens logs with their topic's settings: all of them at start-up, later one that is new or could not be opened."""

    def __init__(
        self,
        registry: LogRegistry,
        failures: LogDirFailureHandler,
        deletion: LogDeletion,
        *,
        settings_of: Callable[[str], LogSettings],
        executor_of: Callable[[str], Executor],
        files: Files,
        handles: HandlePool,
        clock: Clock,
        producer_expiration_ms: int,
        jitter: Random | None,
    ) -> None:
        self.files = files
        # producer.id.expiration.ms, for logs that are opened from now on.
        self.producer_expiration_ms = producer_expiration_ms
        self._registry = registry
        self._failures = failures
        self._deletion = deletion
        self._settings_of = settings_of
        self._executor_of = executor_of
        self._handles = handles
        self._clock = clock
        self._jitter = jitter

    def open_log(
        self,
        path: str,
        partition: TopicPartition,
        *,
        start_offset: int = 0,
        recovery_point: int = 0,
        high_watermark: int = 0,
        clean: bool = False,
        progress: RecoveryProgress | None = None,
    ) -> UnifiedLog:
        return UnifiedLog.open(
            path,
            partition,
            self._settings_of(partition.topic),
            files=self.files,
            handles=self._handles,
            clock=self._clock,
            log_start_offset=start_offset,
            recovery_point=recovery_point,
            high_watermark=high_watermark,
            clean=clean,
            producer_expiration_ms=self.producer_expiration_ms,
            progress=progress,
            jitter=self._jitter,
        )

    def load(self, recovery_threads: int, report: ReportProgress | None = None) -> LoadReport:
        """Open and register all logs of all directories; blocks. `report` is called from the executors' threads."""
        summary = LoadReport()
        for loaded in self._load_directories(recovery_threads, report):
            self._register(loaded, summary)
            for path in loaded.to_delete:
                self._deletion.remove_later(loaded.directory, path, 0)
        self._registry.require_one_directory()
        return summary

    def _load_directories(self, recovery_threads: int, report: ReportProgress | None) -> list[_LoadedDirectory]:
        loaded: list[_LoadedDirectory] = []
        failed: list[tuple[LogDirectory, StorageFault]] = []
        started: list[tuple[LogDirectory, _DirectoryLoad]] = []
        for directory in self._registry.online_directories:
            load = _DirectoryLoad(directory, self, report)
            try:
                load.start(self._executor_of, recovery_threads)
                started.append((directory, load))
            except StorageFault as fault:
                failed.append((directory, fault))
        for directory, load in started:
            try:
                loaded.append(load.result())
            except StorageFault as fault:
                failed.append((directory, fault))
        for directory, problem in failed:
            self._failures.take_offline(directory, problem)
        return loaded

    def _register(self, loaded: _LoadedDirectory, summary: LoadReport) -> None:
        registry = self._registry
        directory = loaded.directory
        faults: list[StorageFault] = []
        for partition, log in loaded.logs.items():
            try:
                self._add(partition, log, directory)
            except StorageFault as fault:
                faults.append(fault)
        registry.topic_ids.update(loaded.topic_ids)
        for partition, future in loaded.future_logs.items():
            registry.add_future(partition, future)
        registry.offline.update(loaded.broken)
        registry.unopened.update(loaded.unopened)
        for path in loaded.strays:
            _log.warning("%s is a stray replica that the cluster does not know; delete it when it is not needed", path)
        summary.logs += len(loaded.logs)
        summary.recovered_bytes += loaded.recovered_bytes
        summary.clean = summary.clean and directory.stopped_cleanly
        summary.broken.update(loaded.broken)
        summary.strays += loaded.strays
        summary.checkpoint_problems += directory.checkpoint_problems()
        for problem in faults:
            self._failures.fail(problem)

    def _add(self, partition: TopicPartition, log: UnifiedLog, directory: LogDirectory) -> None:
        """A crash while a moved replica took its place leaves two: the longer one stays, the other is set aside."""
        other = self._registry.logs.get(partition)
        if other is None:
            self._registry.add(partition, log, directory)
            return
        shorter = log
        if log.log_end_offset > other.log_end_offset:
            self._registry.remove(partition)
            self._registry.add(partition, log, directory)
            shorter = other
        name = marked_name(partition, DirectoryKind.STRAY)
        _log.warning("%s lies in two directories; setting the shorter one aside as %s", partition, name)
        try:
            shorter.rename_dir(name)
        finally:
            shorter.close(flush=False)

    def open_found(self, found: FoundLog) -> UnifiedLog:
        """A log that start-up could not open for want of room; raises KAFKA_STORAGE_ERROR while there is none."""
        registry = self._registry
        partition, directory = found.partition, registry.directory_at(found.path)
        try:
            with self._failures.refusing(directory.path, f"open {partition}"):
                log = self.open_log(
                    found.path,
                    partition,
                    start_offset=found.start_offset,
                    recovery_point=found.recovery_point,
                    high_watermark=found.high_watermark,
                )
                topic_id = read_topic_id(self.files, directory.path, found.path)
        except CorruptLogError as problem:
            del registry.unopened[partition]
            registry.offline[partition] = str(problem)
            raise KafkaStorageError(f"{partition} is offline: {problem}") from problem
        del registry.unopened[partition]
        registry.add(partition, log, directory)
        if topic_id is not None:
            registry.topic_ids[partition] = topic_id
        return log


class _DirectoryLoad:
    """The load of one directory: `start`, then `result`; directories load side by side in their own executors."""

    def __init__(self, directory: LogDirectory, loader: LogDirLoader, report: ReportProgress | None) -> None:
        self._directory = directory
        self._files = loader.files
        self._open_log = loader.open_log
        self._report = report
        self._lock = threading.Lock()
        self._loaded = _LoadedDirectory(directory)
        self._fault: StorageFault | None = None
        self._done = 0
        self._total = 0
        self._clean = False
        self._recovery_points: Offsets = {}
        self._start_offsets: Offsets = {}
        self._high_watermarks: Offsets = {}
        self._tasks: list[Future[None]] = []

    def start(self, executor_of: Callable[[str], Executor], recovery_threads: int) -> None:
        """Read the checkpoints, list the logs and hand them to executors; raises StorageFault."""
        directory = self._directory
        self._clean = directory.take_clean_shutdown()
        self._recovery_points = directory.read_checkpoint(RECOVERY_POINTS)
        self._start_offsets = directory.read_checkpoint(START_OFFSETS)
        self._high_watermarks = directory.read_checkpoint(HIGH_WATERMARKS)
        found = self._survey()
        self._total = len(found)
        if not self._clean and found:
            _log.info("%s was not stopped cleanly: checking %d logs", directory.path, len(found))
        if self._clean:
            executor = executor_of(directory.path)
            for first in range(0, len(found), _LOGS_PER_TASK):
                self._tasks.append(executor.submit(self._load_some, found[first : first + _LOGS_PER_TASK]))
            return
        # Recovery reads logs to their end: one is as much work as many others, so each thread takes the next.
        waiting = deque(found)
        for number in range(min(recovery_threads, len(found))):
            executor = executor_of(f"{directory.path} recovery {number}" if number else directory.path)
            self._tasks.append(executor.submit(self._load_from, waiting))

    def result(self) -> _LoadedDirectory:
        """Blocks until all is loaded; raises StorageFault if the disk failed on the way."""
        for task in self._tasks:
            task.result()
        if self._fault is not None:
            for log in [*self._loaded.logs.values(), *self._loaded.future_logs.values()]:
                log.close(flush=False)
            raise self._fault
        return self._loaded

    def _survey(self) -> list[tuple[str, TopicPartition, DirectoryKind]]:
        """The logs to open; what is to be deleted or lies aside is noted."""
        found: list[tuple[str, TopicPartition, DirectoryKind]] = []
        path = self._directory.path
        with disk_faults(path, "list the directory"):
            for name in self._files.listdir(path):
                parsed = parse_directory_name(name)
                if parsed is None or not self._files.is_dir(f"{path}/{name}"):
                    continue
                if parsed.kind is DirectoryKind.DELETE:
                    self._loaded.to_delete.append(f"{path}/{name}")
                elif parsed.kind is DirectoryKind.STRAY:
                    self._loaded.strays.append(f"{path}/{name}")
                else:
                    found.append((name, parsed.partition, parsed.kind))
        return found

    def _load_from(self, waiting: deque[tuple[str, TopicPartition, DirectoryKind]]) -> None:
        while waiting:
            try:
                found = waiting.popleft()
            except IndexError:
                return  # another thread took the last one
            self._load_some([found])

    def _load_some(self, some: Sequence[tuple[str, TopicPartition, DirectoryKind]]) -> None:
        for name, partition, kind in some:
            if self._fault is not None:
                return
            found = self._found(f"{self._directory.path}/{name}", partition, kind)
            try:
                with disk_faults(self._directory.path, f"open {name}"):
                    self._load_one(found, kind)
            except StorageFault as fault:
                if not is_disk_full(fault):
                    self._fault = fault
                    return
                self._no_room(found, kind, fault)
            except CorruptLogError as problem:
                _log.error("%s stays offline: %s", partition, problem)
                with self._lock:
                    self._loaded.broken[partition] = str(problem)

    def _found(self, path: str, partition: TopicPartition, kind: DirectoryKind) -> FoundLog:
        # A future log's offsets were never checkpointed: what the files say must do.
        is_future = kind is DirectoryKind.FUTURE
        return FoundLog(
            path,
            partition,
            self._start_offsets.get(partition, 0),
            0 if is_future else self._recovery_points.get(partition, 0),
            0 if is_future else self._high_watermarks.get(partition, 0),
        )

    def _no_room(self, found: FoundLog, kind: DirectoryKind, fault: StorageFault) -> None:
        with self._lock:
            if kind is DirectoryKind.FUTURE:
                _log.error("%s stays where it is: %s", found.partition, fault)
                self._loaded.to_delete.append(found.path)
            else:
                _log.error("%s is opened once there is room: %s", found.partition, fault)
                self._loaded.unopened[found.partition] = found

    def _load_one(self, found: FoundLog, kind: DirectoryKind) -> None:
        path, partition = found.path, found.partition
        log = self._open_log(
            path,
            partition,
            start_offset=found.start_offset,
            recovery_point=found.recovery_point,
            high_watermark=found.high_watermark,
            clean=self._clean,
            progress=self._recovering if self._report is not None and not self._clean else None,
        )
        topic_id = read_topic_id(self._files, self._directory.path, path)
        if topic_id is not None and not self._clean:
            # The process before this one may have ended before it was synced.
            log.sync_along(FILE_NAME)
        with self._lock:
            loaded = self._loaded
            if kind is DirectoryKind.FUTURE:
                loaded.future_logs[partition] = log
            else:
                loaded.logs[partition] = log
                if topic_id is not None:
                    loaded.topic_ids[partition] = topic_id
            loaded.recovered_bytes += log.recovery.bytes_scanned
            self._done += 1
            report = LoadProgress(self._directory.path, self._done, self._total, loaded.recovered_bytes)
        if self._report is not None:
            self._report(report)

    def _recovering(self, partition: TopicPartition, done: int, total: int, bytes_done: int, bytes_total: int) -> None:
        if self._report is not None:
            self._report(
                LoadProgress(
                    self._directory.path,
                    self._done,
                    self._total,
                    self._loaded.recovered_bytes,
                    partition,
                    bytes_done,
                    bytes_total,
                )
            )
