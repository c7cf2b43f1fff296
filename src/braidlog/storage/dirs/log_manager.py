"""All logs of a broker across its data directories: found at start, created, deleted, moved, lost with their disk.

Owned by one thread, like the logs. A directory that fails takes its own logs offline and nothing else; when the last
one is gone there is nothing left to serve.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from random import Random
from typing import Final

from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import Clock
from braidlog.core.errors import CorruptLogError, StorageFault, UserError, is_disk_full
from braidlog.core.ids import random_id
from braidlog.core.protocol_errors import InconsistentTopicIdError, KafkaStorageError
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.checkpointing import CheckpointWrite, CleanShutdown, checkpointed_offset
from braidlog.storage.dirs.deletion_queue import DeletionQueue
from braidlog.storage.dirs.directory_lock import lock_directory
from braidlog.storage.dirs.directory_names import DirectoryKind, marked_name
from braidlog.storage.dirs.loaded_logs import register_loaded
from braidlog.storage.dirs.log_dir_loader import FoundLog, LoadReport, ReportProgress, load_directories, stored_topic_id
from braidlog.storage.dirs.log_directory import LockDirectory, LogDirectory
from braidlog.storage.dirs.log_registry import LogRegistry
from braidlog.storage.dirs.offset_checkpoint_file import Offsets
from braidlog.storage.dirs.partition_metadata_file import FILE_NAME, encode_partition_metadata
from braidlog.storage.dirs.text_files import disk_faults
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.jobs import Work
from braidlog.storage.log.unified_log import RecoveryProgress, UnifiedLog
from braidlog.storage.settings import StorageSettings

_log = logging.getLogger(__name__)

_FULL_EVERY_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class LogDirFailure:
    path: str
    reason: str
    # Partitions whose current replica is now offline, in the order they were opened.
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class _Unrenamed:
    """A directory that is to get the name of `kind`, for which the disk had no room."""

    path: str
    partition: TopicPartition
    directory: LogDirectory
    kind: DirectoryKind


class LogManager:
    """`settings_of(topic)` gives a topic's effective settings, `executor_of(path)` a directory's executor."""

    def __init__(
        self,
        directories: Sequence[str],
        *,
        settings_of: Callable[[str], LogSettings],
        executor_of: Callable[[str], Executor],
        files: Files,
        handles: HandlePool,
        clock: Clock,
        settings: StorageSettings | None = None,
        lock: LockDirectory = lock_directory,
        new_id: Callable[[], bytes] = random_id,
        jitter: Random | None = None,
    ) -> None:
        if not directories:
            raise UserError("no data directory: set log.dirs")
        paths = [path.rstrip("/") or "/" for path in directories]
        if len(set(paths)) != len(paths):
            raise UserError("log.dirs names a directory twice")
        self.registry = LogRegistry([LogDirectory(path, files, lock, new_id) for path in paths])
        self.settings = settings or StorageSettings()
        self.clock = clock
        self.files = files
        self.handles = handles
        self.deletions = DeletionQueue(clock)
        # Told on the owning thread after the logs of a failed directory were dropped.
        self.on_directory_failed: list[Callable[[LogDirFailure], None]] = []
        # Told at the start of `close`, while all logs are still there.
        self.on_closing: list[Callable[[], None]] = []
        # Told when a replica was moved: from now on this log is the partition's.
        self.on_log_moved: list[Callable[[TopicPartition, UnifiedLog], None]] = []
        # Told before a log is closed for good, so that nobody works on it any longer.
        self.on_log_removal: list[Callable[[TopicPartition], None]] = []
        self.new_id = new_id
        self._jitter = jitter
        self._settings_of = settings_of
        self._executor_of = executor_of
        self._preferred: dict[TopicPartition, str] = {}
        self._unrenamed: list[_Unrenamed] = []
        # When to speak again of a directory that has no room.
        self._next_disk_full_log: dict[str, float] = {}

    # --- start
    def open(self) -> None:
        """Lock every directory and read whose it is; those that fail are offline, unless they all are."""
        try:
            for directory in self.directories:
                try:
                    directory.open()
                except StorageFault as fault:
                    self._directory_gone(directory, fault)
            self.registry.require_one_directory()
        except BaseException:
            self.release()
            raise

    def stored_cluster_id(self) -> str | None:
        """The cluster that the directories were used by so far; none if all are new."""
        found = [d.properties.cluster_id for d in self.directories if d.properties is not None]
        return next((cluster_id for cluster_id in found if cluster_id is not None), None)

    def stored_node_id(self) -> int | None:
        found = [d.properties.node_id for d in self.directories if d.properties is not None]
        return next((node_id for node_id in found if node_id is not None), None)

    def claim(self, cluster_id: str, node_id: int) -> None:
        for directory in self.online_directories:
            try:
                directory.claim(cluster_id, node_id, self.clock.wall_ms())
            except StorageFault as fault:
                self.fail_directory(fault)

    def load(self, report: ReportProgress | None = None) -> LoadReport:
        """Open all logs; blocks. `report` is called from the executors' threads."""
        threads = self.settings.num_recovery_threads_per_data_dir
        loaded, failed = load_directories(
            self.online_directories, self.files, self.open_log, self._executor_of, threads, report
        )
        for directory, fault in failed:
            self._directory_gone(directory, fault)
        summary = LoadReport()
        for result in loaded:
            for fault in register_loaded(self.registry, result, summary):
                self.fail_directory(fault)
            for path in result.to_delete:
                self._remove_later(result.directory, path, 0)
        self.registry.require_one_directory()
        return summary

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
            handles=self.handles,
            clock=self.clock,
            log_start_offset=start_offset,
            recovery_point=recovery_point,
            high_watermark=high_watermark,
            clean=clean,
            producer_expiration_ms=self.settings.producer_id_expiration_ms,
            progress=progress,
            jitter=self._jitter,
        )

    def apply_settings(self, settings: StorageSettings) -> None:
        """New settings of the broker: whoever works with one of them asks for it again."""
        self.settings = settings
        for log in [*self.registry.logs.values(), *self.registry.future_logs.values()]:
            log.producer_state.expiration_ms = settings.producer_id_expiration_ms

    # --- look up
    @property
    def directories(self) -> list[LogDirectory]:
        return self.registry.directories

    @property
    def online_directories(self) -> list[LogDirectory]:
        return self.registry.online_directories

    @property
    def partitions(self) -> list[TopicPartition]:
        return list(self.registry.logs)

    @property
    def offline_partitions(self) -> dict[TopicPartition, str]:
        """Replicas whose directory failed or that could not be opened, with the reason."""
        return dict(self.registry.offline)

    def __len__(self) -> int:
        return len(self.registry.logs)

    def get(self, partition: TopicPartition) -> UnifiedLog | None:
        return self.registry.logs.get(partition)

    def log(self, partition: TopicPartition) -> UnifiedLog:
        """The current replica; raises KAFKA_STORAGE_ERROR where its directory failed."""
        return self.registry.require(partition)

    def items(self) -> list[tuple[TopicPartition, UnifiedLog]]:
        return list(self.registry.logs.items())

    def topic_id(self, partition: TopicPartition) -> bytes | None:
        return self.registry.topic_ids.get(partition)

    # --- create, change, delete
    def prefer_directory(self, partition: TopicPartition, path: str) -> None:
        """Where the partition is to be created when it comes (AlterReplicaLogDirs before CreateTopics)."""
        self._preferred[partition] = self.registry.directory_named(path).path

    def create(
        self,
        partition: TopicPartition,
        *,
        topic_id: bytes | None = None,
        directory: str | None = None,
        is_new: bool = True,
    ) -> UnifiedLog:
        """The partition's log, made if there is none.

        `is_new` false says that the broker had it before: with a directory offline it may lie there, so it is not made
        a second time.
        """
        log = self.registry.logs.get(partition)
        if log is None:
            self.registry.require_not_offline(partition)
            found = self.registry.unopened.get(partition)
            if found is not None:
                log = self._open_found(found)
            elif not is_new and len(self.online_directories) < len(self.directories):
                raise KafkaStorageError(f"{partition} may lie in a data directory that is offline")
            else:
                log = self._create_in(self._choose_directory(partition, directory), partition)
        self._assign_topic_id(partition, topic_id)
        return log

    def _create_in(self, directory: LogDirectory, partition: TopicPartition) -> UnifiedLog:
        try:
            self._rename_remains(partition)
            directory.forget(partition)
            with disk_faults(directory.path, f"create {partition}"):
                log = self.open_log(f"{directory.path}/{partition}", partition, clean=True)
        except StorageFault as fault:
            self.fail_directory(fault)
            raise KafkaStorageError(str(fault)) from fault
        self.registry.add(partition, log, directory)
        self._preferred.pop(partition, None)
        return log

    def _open_found(self, found: FoundLog) -> UnifiedLog:
        """A log that start-up could not open for want of room; raises KAFKA_STORAGE_ERROR while there is none."""
        partition, directory = found.partition, self.registry.directory_at(found.path)
        try:
            with disk_faults(directory.path, f"open {partition}"):
                log = self.open_log(
                    found.path,
                    partition,
                    start_offset=found.start_offset,
                    recovery_point=found.recovery_point,
                    high_watermark=found.high_watermark,
                )
                topic_id = stored_topic_id(self.files, directory.path, found.path)
        except StorageFault as fault:
            self.fail_directory(fault)
            raise KafkaStorageError(str(fault)) from fault
        except CorruptLogError as problem:
            del self.registry.unopened[partition]
            self.registry.offline[partition] = str(problem)
            raise KafkaStorageError(f"{partition} is offline: {problem}") from problem
        del self.registry.unopened[partition]
        self.registry.add(partition, log, directory)
        if topic_id is not None:
            self.registry.topic_ids[partition] = topic_id
        return log

    def _choose_directory(self, partition: TopicPartition, wanted: str | None) -> LogDirectory:
        wanted = wanted or self._preferred.get(partition)
        if wanted is not None:
            directory = self.registry.directory_named(wanted)
            if directory.is_online:
                return directory
            _log.warning("%s was to be created in %s, which is offline; choosing another", partition, wanted)
        return self.registry.emptiest_directory()

    def _assign_topic_id(self, partition: TopicPartition, topic_id: bytes | None) -> None:
        if topic_id is None:
            return
        known = self.registry.topic_ids.get(partition)
        if known is None:
            directory = self.registry.directory_of(partition)
            try:
                with disk_faults(directory.path, f"write the topic id of {partition}"):
                    # Not synced: a torn file is noticed, and the cluster's metadata has the id as well.
                    data = encode_partition_metadata(topic_id).encode()
                    self.files.write_atomic(f"{directory.path}/{partition}/{FILE_NAME}", data, sync=False)
            except StorageFault as fault:
                self.fail_directory(fault)
                # Where there is just no room, the next start writes it.
                if not is_disk_full(fault):
                    raise KafkaStorageError(str(fault)) from fault
            self.registry.topic_ids[partition] = topic_id
        elif known != topic_id:
            raise InconsistentTopicIdError(
                f"the log of {partition} belongs to an earlier topic of that name; it must be deleted first"
            )

    def update_topic(self, topic: str, settings: LogSettings) -> int:
        """Apply a topic's new settings to its logs here, at once; how many there were."""
        touched = 0
        for partition, log in [*self.registry.logs.items(), *self.registry.future_logs.items()]:
            if partition.topic == topic:
                log.update_settings(settings)
                touched += 1
        return touched

    def delete(self, partition: TopicPartition) -> None:
        """The log is gone for everyone at once; its files go after file.delete.delay.ms."""
        self.drop_future(partition)
        log = self.registry.logs.get(partition)
        if log is not None:
            self._retire(partition, log, DirectoryKind.DELETE)
        elif partition in self.registry.unopened:
            self._delete_unopened(partition)
        else:
            self.registry.require_not_offline(partition)

    def mark_stray(self, partition: TopicPartition) -> None:
        """A replica that the cluster does not know is kept under a name that nobody serves."""
        log = self.registry.logs.get(partition)
        if log is not None:
            self._retire(partition, log, DirectoryKind.STRAY)

    def _retire(self, partition: TopicPartition, log: UnifiedLog, kind: DirectoryKind) -> None:
        directory = self.registry.directory_of(partition)
        self._notify_log_removal(partition)
        self.registry.remove(partition)
        self.registry.topic_ids.pop(partition, None)
        try:
            self._retire_files(directory, partition, log, kind)
        except StorageFault as fault:
            self.fail_directory(fault)

    def _retire_files(
        self, directory: LogDirectory, partition: TopicPartition, log: UnifiedLog, kind: DirectoryKind
    ) -> None:
        """Rename and close a log that is no longer registered; queue the removal where its name says so.

        Without room for the new name that is tried again: under the old one nothing new may be made meanwhile.
        """
        name = marked_name(partition, kind, self.new_id)
        path = log.directory
        try:
            with disk_faults(directory.path, f"rename {partition}"):
                log.rename_dir(name)
        except StorageFault as fault:
            if is_disk_full(fault) and self.files.exists(path):
                self._unrenamed.append(_Unrenamed(path, partition, directory, kind))
            raise
        finally:
            log.close(flush=False)
        if kind is DirectoryKind.DELETE:
            self._remove_later(directory, f"{directory.path}/{name}", self.settings.log_segment_delete_delay_ms)

    def _rename_remains(self, partition: TopicPartition | None = None) -> None:
        """Rename what could not be renamed before, of this partition or of all; raises StorageFault."""
        for remains in self._unrenamed[:]:
            if partition is not None and remains.partition != partition:
                continue
            name = marked_name(remains.partition, remains.kind, self.new_id)
            directory = remains.directory.path
            with disk_faults(directory, f"rename {remains.partition}"):
                if self.files.exists(remains.path):
                    self.files.rename(remains.path, f"{directory}/{name}")
                    self.files.sync_dir(directory)
            self._unrenamed.remove(remains)
            if remains.kind is DirectoryKind.DELETE:
                self._remove_later(remains.directory, f"{directory}/{name}", self.settings.log_segment_delete_delay_ms)

    def due_deletions(self) -> Iterator[Work]:
        """What has waited long enough to be removed; raises StorageFault."""
        self._rename_remains()
        yield from self.deletions.due()

    def _delete_unopened(self, partition: TopicPartition) -> None:
        found = self.registry.unopened.pop(partition)
        directory = self.registry.directory_at(found.path)
        self._unrenamed.append(_Unrenamed(found.path, partition, directory, DirectoryKind.DELETE))
        try:
            self._rename_remains(partition)
        except StorageFault as fault:
            self.fail_directory(fault)

    def _remove_later(self, directory: LogDirectory, path: str, delay_ms: int) -> None:
        files = self.files

        def remove() -> None:
            files.rmtree(path)

        self.deletions.add(directory.path, path, delay_ms, remove)

    # --- replicas on the move
    def drop_future(self, partition: TopicPartition) -> None:
        """Give up a copy that has not taken its place yet."""
        future = self.registry.remove_future(partition)
        if future is None:
            return
        try:
            directory = self.registry.directory_at(future.directory)
            self._retire_files(directory, partition, future, DirectoryKind.DELETE)
        except StorageFault as fault:
            self.fail_directory(fault)

    def promote_future(self, partition: TopicPartition) -> UnifiedLog:
        """The copy takes the replica's place; the old files wait for their removal."""
        registry = self.registry
        future = registry.future_logs[partition]
        source = registry.directory_of(partition)
        target = registry.directory_at(future.directory)
        with disk_faults(target.path, f"move {partition} in"):
            future.rename_dir(str(partition))
        self._notify_log_removal(partition)
        current = registry.remove(partition)
        registry.remove_future(partition)
        registry.add(partition, future, target)
        for listener in self.on_log_moved:
            listener(partition, future)
        self._retire_files(source, partition, current, DirectoryKind.DELETE)
        return future

    # --- failure
    def fail_directory(self, fault: StorageFault) -> None:
        """Take the directory offline with its logs and tell those who listen; FatalError if it was the last.

        A disk without room has not failed: that is only logged, and what could not be written is tried again.
        """
        if is_disk_full(fault):
            self._log_disk_full(fault)
            return
        self._directory_gone(self.registry.directory_at(fault.directory), fault)
        self.registry.require_one_directory()

    def _log_disk_full(self, fault: StorageFault) -> None:
        """Once in a while: producers try again many times a second, and the broker's log needs room as well."""
        now = self.clock.monotonic()
        if now >= self._next_disk_full_log.get(fault.directory, 0.0):
            self._next_disk_full_log[fault.directory] = now + _FULL_EVERY_S
            _log.error("%s; free some space, or lower retention.ms or retention.bytes", fault)

    def _directory_gone(self, directory: LogDirectory, fault: StorageFault) -> None:
        if not directory.is_online:
            return
        _log.error("%s; its partitions are offline until it is repaired and the broker restarted", fault)
        for partition in self.registry.logs_in(directory):
            self._notify_log_removal(partition)
        lost, futures = self.registry.take_offline(directory, fault)
        for log in [*lost.values(), *futures]:
            log.close(flush=False)
        self.deletions.forget_directory(directory.path)
        self._unrenamed = [remains for remains in self._unrenamed if remains.directory is not directory]
        failure = LogDirFailure(directory.path, fault.reason, tuple(lost))
        for listener in self.on_directory_failed:
            listener(failure)

    # --- checkpoints and stop
    def checkpoint_offsets(self, name: str) -> dict[str, Offsets]:
        """What the checkpoint `name` should say now, by directory path; cheap, on the owning thread."""
        offsets: dict[str, Offsets] = {directory.path: {} for directory in self.online_directories}
        for partition, log in self.registry.logs.items():
            offset = checkpointed_offset(log, name)
            if offset is not None:
                offsets[self.registry.directory_of(partition).path][partition] = offset
        for partition, found in self.registry.unopened.items():
            offset = checkpointed_offset(found, name)
            if offset is not None:
                offsets[self.registry.directory_at(found.path).path][partition] = offset
        return offsets

    def checkpoint_work(self, name: str) -> list[Work]:
        named = self.registry.directory_named
        return [
            Work(path, f"write {name}", CheckpointWrite(named(path), name, offsets))
            for path, offsets in self.checkpoint_offsets(name).items()
        ]

    def close(self, broker_epoch: int = -1, *, mark_clean: bool = True) -> None:
        """Flush and close all logs, write the checkpoints and the mark of a clean stop; blocks."""
        for listener in self.on_closing:
            listener()
        stops: list[tuple[LogDirectory, CleanShutdown]] = []
        for directory in self.online_directories:
            logs = self.registry.logs_in(directory)
            futures = list(self.registry.future_logs_in(directory).values())
            unopened = self.registry.unopened_in(directory)
            executor = self._executor_of(directory.path)
            stops.append((directory, CleanShutdown(directory, logs, futures, unopened, executor)))
        for directory, stop in stops:
            try:
                stop.finish(broker_epoch, mark=mark_clean)
            except StorageFault as fault:
                _log.error("%s was not closed cleanly: %s; it is checked at the next start", directory.path, fault)
        self.registry.clear()
        self.release()

    def release(self) -> None:
        for directory in self.directories:
            directory.release()

    def _notify_log_removal(self, partition: TopicPartition) -> None:
        for listener in self.on_log_removal:
            listener(partition)
