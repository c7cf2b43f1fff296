"""Opens every log of a data directory at start-up, in the directory's executor, saying how far it is.

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
from typing import Final, Protocol

from braidlog.core.errors import CorruptLogError, StorageFault, is_disk_full
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.directory_names import DirectoryKind, parse_directory_name
from braidlog.storage.dirs.log_directory import LogDirectory
from braidlog.storage.dirs.offset_checkpoint_file import HIGH_WATERMARKS, RECOVERY_POINTS, START_OFFSETS, Offsets
from braidlog.storage.dirs.partition_metadata_file import FILE_NAME, decode_partition_metadata
from braidlog.storage.dirs.text_files import disk_faults, read_text
from braidlog.storage.files import Files
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


@dataclass(frozen=True, slots=True)
class FoundLog:
    """A log's directory, and what the checkpoints say of it."""

    path: str
    partition: TopicPartition
    start_offset: int
    recovery_point: int
    high_watermark: int


class OpenLog(Protocol):
    def __call__(
        self,
        path: str,
        partition: TopicPartition,
        *,
        start_offset: int,
        recovery_point: int,
        high_watermark: int,
        clean: bool,
        progress: RecoveryProgress | None,
    ) -> UnifiedLog: ...


@dataclass
class LoadedDirectory:
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


class DirectoryLoader:
    """Loads one directory: `start`, then `result`; directories load side by side in their own executors."""

    def __init__(self, directory: LogDirectory, files: Files, open_log: OpenLog, report: ReportProgress | None) -> None:
        self._directory = directory
        self._files = files
        self._open_log = open_log
        self._report = report
        self._lock = threading.Lock()
        self._loaded = LoadedDirectory(directory)
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

    def result(self) -> LoadedDirectory:
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
        topic_id = stored_topic_id(self._files, self._directory.path, path)
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


def stored_topic_id(files: Files, directory: str, path: str) -> bytes | None:
    """What the log's directory at `path` says which topic it belongs to."""
    path = f"{path}/{FILE_NAME}"
    text = read_text(files, directory, path)
    if text is None:
        return None
    try:
        return decode_partition_metadata(text, path)
    except CorruptLogError as problem:
        # The cluster's metadata knows the id as well, and writes it again.
        _log.warning("%s; ignoring it", problem)
        return None


def load_directories(
    directories: Sequence[LogDirectory],
    files: Files,
    open_log: OpenLog,
    executor_of: Callable[[str], Executor],
    recovery_threads: int,
    report: ReportProgress | None,
) -> tuple[list[LoadedDirectory], list[tuple[LogDirectory, StorageFault]]]:
    """All directories at once; what loaded, and which of them failed."""
    loaded: list[LoadedDirectory] = []
    failed: list[tuple[LogDirectory, StorageFault]] = []
    started: list[tuple[LogDirectory, DirectoryLoader]] = []
    for directory in directories:
        loader = DirectoryLoader(directory, files, open_log, report)
        try:
            loader.start(executor_of, recovery_threads)
            started.append((directory, loader))
        except StorageFault as fault:
            failed.append((directory, fault))
    for directory, loader in started:
        try:
            loaded.append(loader.result())
        except StorageFault as fault:
            failed.append((directory, fault))
    return loaded, failed
