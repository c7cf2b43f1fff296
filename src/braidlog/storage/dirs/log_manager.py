"""All logs of a broker across its data directories: found at start, created, deleted, moved, lost with their disk.

Owned by one thread, like the logs. A directory that fails takes its own logs offline and nothing else; when the last
one is gone there is nothing left to serve.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from random import Random

from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import Clock
from braidlog.core.errors import StorageFault, UserError, is_disk_full
from braidlog.core.ids import ZERO_ID, random_id
from braidlog.core.protocol_errors import InconsistentTopicIdError, KafkaStorageError
from braidlog.core.types import NO_EPOCH, TopicPartition
from braidlog.storage.dirs.checkpointing import CleanShutdown, OffsetCheckpoints
from braidlog.storage.dirs.directory_lock import lock_directory
from braidlog.storage.dirs.directory_names import DirectoryKind
from braidlog.storage.dirs.log_deletion import LogDeletion
from braidlog.storage.dirs.log_dir_failures import LogDirFailureHandler
from braidlog.storage.dirs.log_dir_loader import LoadReport, LogDirLoader, ReportProgress
from braidlog.storage.dirs.log_directory import LockDirectory, LogDirectory
from braidlog.storage.dirs.log_registry import LogRegistry
from braidlog.storage.dirs.lost_replicas import LostReplica
from braidlog.storage.dirs.partition_metadata_file import write_topic_id
from braidlog.storage.dirs.text_files import disk_faults
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.jobs import Finish, Work
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.storage.settings import StorageSettings

_log = logging.getLogger(__name__)


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
        self.settings = settings or StorageSettings()
        self.clock = clock
        self.files = files
        self.new_id = new_id
        self.registry = LogRegistry([LogDirectory(path, files, lock, new_id) for path in paths])
        self.checkpoints = OffsetCheckpoints(self.registry)
        self.failures = LogDirFailureHandler(self.registry, clock)
        self.deletion = LogDeletion(
            self.registry,
            self.failures,
            files=files,
            clock=clock,
            new_id=new_id,
            delete_delay_ms=self.settings.log_segment_delete_delay_ms,
        )
        self.loader = LogDirLoader(
            self.registry,
            self.failures,
            self.deletion,
            settings_of=settings_of,
            executor_of=executor_of,
            files=files,
            handles=handles,
            clock=clock,
            producer_expiration_ms=self.settings.producer_id_expiration_ms,
            jitter=jitter,
        )
        # Called at the start of `close`, while all logs are still there.
        self.on_closing: list[Callable[[], None]] = []
        self._executor_of = executor_of
        self._preferred: dict[TopicPartition, str] = {}
        self._lost: dict[TopicPartition, bytes] = {}

    # --- start
    def open(self) -> None:
        """Lock every directory and read whose it is; those that fail are offline, unless they all are."""
        try:
            for directory in self.directories:
                try:
                    directory.open()
                except StorageFault as fault:
                    self.failures.take_offline(directory, fault)
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

    @property
    def has_unformatted_directory(self) -> bool:
        return not all(directory.is_formatted for directory in self.online_directories)

    def claim(self, cluster_id: str, node_id: int, counted_on: Sequence[LostReplica] = ()) -> None:
        """`counted_on` is for directories that are formatted now (see `LogDirectory.claim`)."""
        for directory in self.online_directories:
            with self.failures.reporting(directory.path, "claim the directory"):
                directory.claim(cluster_id, node_id, self.clock.wall_ms(), counted_on)
        self._lost = {each.partition: each.topic_id for d in self.online_directories for each in d.lost_replicas}

    @property
    def has_lost_replicas(self) -> bool:
        return any(self.is_lost(partition, topic_id) for partition, topic_id in self._lost.items())

    def is_lost(self, partition: TopicPartition, topic_id: bytes) -> bool:
        """Whether the cluster counted on a log of this broker that went with its disk."""
        if partition not in self._lost or partition in self.registry.logs or partition in self.registry.unopened:
            return False
        lost = self._lost[partition]
        return ZERO_ID in (lost, topic_id) or lost == topic_id

    def load(self, report: ReportProgress | None = None) -> LoadReport:
        """Open all logs; blocks. `report` is called from the executors' threads."""
        return self.loader.load(self.settings.num_recovery_threads_per_data_dir, report)

    def apply_settings(self, settings: StorageSettings) -> None:
        """New settings of the broker; most are read from here when they are needed."""
        self.settings = settings
        self.deletion.delete_delay_ms = settings.log_segment_delete_delay_ms
        self.loader.producer_expiration_ms = settings.producer_id_expiration_ms
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
                log = self.loader.open_found(found)
            elif not is_new and len(self.online_directories) < len(self.directories):
                raise KafkaStorageError(f"{partition} may lie in a data directory that is offline")
            else:
                log = self._create_in(self._choose_directory(partition, directory), partition)
        if topic_id is not None:
            self.assign_topic_id(partition, topic_id)
        return log

    def creation(self, partition: TopicPartition, topic_id: bytes, leader_epoch: int) -> Work | None:
        """Makes the log of a new partition in a thread, so that only that waits for the disk; `create` finds it then.

        `leader_epoch` is the one in which this broker leads it, or NO_EPOCH. None where there is more to it than making
        an empty log. All that goes wrong is left to `create`, too.
        """
        registry = self.registry
        if partition in registry.logs or partition in registry.offline or partition in registry.unopened:
            return None
        if not registry.online_directories or self.deletion.is_unrenamed(partition):
            return None
        directory = self._choose_directory(partition, None)
        if directory.remembers(partition):
            return None
        # Counts at once: the next one goes to another directory.
        directory.partition_count += 1
        path = f"{directory.path}/{partition}"

        def make() -> Finish:
            log = None
            try:
                log = self.loader.open_log(path, partition, clean=True)
                write_topic_id(self.files, log, topic_id)
                if leader_epoch != NO_EPOCH:
                    log.begin_leader_epoch(leader_epoch)
            except (OSError, StorageFault):
                if log is not None:
                    log.close(flush=False)
                    log = None
            return partial(self._add_made, directory, partition, topic_id, log)

        return Work(directory.path, f"create {partition}", make)

    def _add_made(
        self, directory: LogDirectory, partition: TopicPartition, topic_id: bytes, log: UnifiedLog | None
    ) -> None:
        directory.partition_count -= 1
        if log is None:
            return
        if not directory.is_online:
            log.close(flush=False)
            return
        self.registry.add(partition, log, directory)
        self.registry.topic_ids[partition] = topic_id
        self._preferred.pop(partition, None)

    def executor_of(self, directory: str) -> Executor:
        return self._executor_of(directory)

    def _create_in(self, directory: LogDirectory, partition: TopicPartition) -> UnifiedLog:
        with self.failures.refusing(directory.path, f"create {partition}"):
            self.deletion.rename_unrenamed(partition)
            directory.forget(partition)
            log = self.loader.open_log(f"{directory.path}/{partition}", partition, clean=True)
        self.registry.add(partition, log, directory)
        self._preferred.pop(partition, None)
        return log

    def _choose_directory(self, partition: TopicPartition, wanted: str | None) -> LogDirectory:
        wanted = wanted or self._preferred.get(partition)
        if wanted is not None:
            directory = self.registry.directory_named(wanted)
            if directory.is_online:
                return directory
            _log.warning("%s was to be created in %s, which is offline; choosing another", partition, wanted)
        return self.registry.emptiest_directory()

    def assign_topic_id(self, partition: TopicPartition, topic_id: bytes) -> None:
        """Raises InconsistentTopicIdError for a log of another topic; ZERO_ID, of an older controller, says nothing."""
        if topic_id == ZERO_ID:
            return
        known = self.registry.topic_ids.get(partition)
        if known is None:
            directory = self.registry.directory_of(partition)
            try:
                with disk_faults(directory.path, f"write the topic id of {partition}"):
                    write_topic_id(self.files, self.registry.logs[partition], topic_id)
            except StorageFault as fault:
                self.failures.fail(fault)
                # Where there is just no room, the next start writes it.
                if not is_disk_full(fault):
                    raise KafkaStorageError(str(fault)) from fault
            self.registry.topic_ids[partition] = topic_id
        elif known != topic_id:
            raise InconsistentTopicIdError(
                f"the log of {partition} belongs to an earlier topic of that name; it must be deleted first"
            )

    def delete(self, partition: TopicPartition) -> None:
        """The log is gone for everyone at once; its files go after file.delete.delay.ms."""
        self.deletion.retire_future(partition)
        if partition in self.registry.logs:
            self.deletion.retire(partition, DirectoryKind.DELETE)
        elif partition in self.registry.unopened:
            self.deletion.retire_unopened(partition)
        else:
            self.registry.require_not_offline(partition)

    def mark_stray(self, partition: TopicPartition) -> None:
        """A replica that the cluster does not know is kept under a name that is not served."""
        if partition in self.registry.logs:
            self.deletion.retire(partition, DirectoryKind.STRAY)

    # --- stop
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
