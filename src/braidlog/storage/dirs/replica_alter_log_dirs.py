"""AlterReplicaLogDirs: a copy of a replica grows in another data directory and takes its place once it has caught up.

The copy (`-future`) is filled in the target directory's executor, a chunk at a time, and touched by nothing else until
it is promoted. The last bytes are copied on the thread that owns the logs, so that no append can slip in between.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from braidlog.core.errors import StorageFault, is_disk_full
from braidlog.core.protocol_errors import InvalidRequestError, KafkaStorageError
from braidlog.core.quota import DEFAULT_WINDOW, QuotaWindow
from braidlog.core.replication_quota import ReplicationQuota
from braidlog.core.slices import ByteSlice, FileSlice
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.directory_names import LONGEST_NAME, DirectoryKind, marked_name
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.dirs.partition_metadata_file import write_topic_id
from braidlog.storage.dirs.text_files import disk_faults
from braidlog.storage.jobs import Finish, Work
from braidlog.storage.log.unified_log import UnifiedLog

_log = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1 << 20
# A gap this small is closed at once on the owning thread instead of chasing a busy log for ever.
_CATCH_UP_BYTES: Final = 1 << 16
_CHUNKS_PER_RUN: Final = 64


class ReplicaAlterLogDirs:
    """Drives every `-future` replica of the manager; `run` is the body of a job."""

    def __init__(self, manager: LogManager, window: QuotaWindow = DEFAULT_WINDOW) -> None:
        self._manager = manager
        # What moves between directories may use of the disks.
        self.quota = ReplicationQuota(manager.clock, window)
        # How often the original had been truncated when its copy began.
        self._truncations: dict[TopicPartition, int] = {}
        # The partition whose own promotion makes its old log leave.
        self._promoting: TopicPartition | None = None
        manager.registry.on_log_removal.append(self._log_removed)
        self._resume()

    def _resume(self) -> None:
        """Copies that were under way before a restart: recovery may have cut the original below what they hold."""
        for partition in self.partitions:
            current = self._manager.get(partition)
            if current is not None:
                self._follow_truncation(partition, current, self._manager.registry.future_logs[partition])

    @property
    def partitions(self) -> list[TopicPartition]:
        return list(self._manager.registry.future_logs)

    def start(self, partition: TopicPartition, path: str) -> None:
        """Begin, redirect or give up a move; without a replica yet, remember where it is to be created."""
        manager = self._manager
        directory = manager.registry.directory_named(path)
        if not directory.is_online:
            raise KafkaStorageError(f"{path} is offline: {directory.failure}")
        current = manager.get(partition)
        if current is None:
            manager.registry.require_not_offline(partition)
            manager.prefer_directory(partition, path)
            return
        future = manager.registry.future_logs.get(partition)
        if future is not None:
            if manager.registry.directory_at(future.directory) is directory:
                return
            manager.deletion.retire_future(partition)
        if manager.registry.directory_of(partition) is directory:
            return
        name = marked_name(partition, DirectoryKind.FUTURE, manager.new_id)
        if len(name) > LONGEST_NAME:
            raise InvalidRequestError(f"the name of topic {partition.topic} is too long for its replicas to be moved")
        with manager.failures.refusing(directory.path, f"create {name}"):
            manager.registry.add_future(partition, self._create(partition, f"{directory.path}/{name}", current))
        self._truncations[partition] = current.truncation_count
        _log.info("Moving %s to %s", partition, directory.path)

    def _create(self, partition: TopicPartition, path: str, current: UnifiedLog) -> UnifiedLog:
        manager = self._manager
        try:
            with disk_faults(manager.registry.directory_at(path).path, f"create {path}"):
                future = manager.loader.open_log(path, partition, clean=True)
                if current.log_start_offset > 0:
                    future.truncate_fully_and_start_at(current.log_start_offset)
                topic_id = manager.topic_id(partition)
                if topic_id is not None:
                    write_topic_id(manager.files, future, topic_id)
        except StorageFault:
            # The move is refused: the next start must not find it and go on with it.
            with suppress(OSError):
                manager.files.rmtree(path)
            raise
        return future

    def run(self) -> Iterator[Work]:
        """A bounded number of chunks of every move."""
        for partition in self.partitions:
            for _ in range(_CHUNKS_PER_RUN):
                work = self._next_chunk(partition)
                if work is None:
                    break
                yield work

    def _next_chunk(self, partition: TopicPartition) -> Work | None:
        registry = self._manager.registry
        future = registry.future_logs.get(partition)
        current = registry.logs.get(partition)
        allowance = self._allowance()
        if future is None or allowance == 0:
            return None
        if current is None:
            # A copy without its original, from before a crash or of a lost directory, is worth nothing.
            self._manager.deletion.retire_future(partition)
            return None
        self._follow_truncation(partition, current, future)
        piece = current.read(future.log_end_offset, min(CHUNK_BYTES, allowance), current.log_end_offset).slice
        directory = registry.directory_at(future.directory).path
        return Work(directory, f"move {partition}", _Copy(self, partition, future, piece, directory))

    def _allowance(self) -> int:
        self.quota.limit = self._manager.settings.replica_alter_log_dirs_io_max_bytes_per_second
        return self.quota.allowance()

    def give_up(self, partition: TopicPartition, future: UnifiedLog, reason: str) -> None:
        if self._manager.registry.future_logs.get(partition) is future:
            _log.error("%s stays where it is: %s", partition, reason)
            self._manager.deletion.retire_future(partition)

    def wall_ms(self) -> int:
        return self._manager.clock.wall_ms()

    def chunk_copied(self, partition: TopicPartition, future: UnifiedLog, size: int) -> None:
        """On the owning thread: promote the copy if nothing, or little, is missing."""
        manager = self._manager
        self.quota.record(size)
        current = manager.get(partition)
        if current is None or manager.registry.future_logs.get(partition) is not future or current.has_staged:
            return
        directory = manager.registry.directory_at(future.directory).path
        with manager.failures.reporting(directory, f"move {partition} in"):
            if not self._has_caught_up(partition, current, future):
                return
            if future.recovery_point < current.recovery_point:
                # The last stretch, a few records that were acknowledged as synced.
                future.sync_to(future.log_end_offset)
            future.advance_high_watermark(current.high_watermark)
            future.increment_log_start_offset(current.log_start_offset)
            self._promote(partition)
            _log.info("%s now lives in %s", partition, directory)

    def _promote(self, partition: TopicPartition) -> None:
        """The copy takes the replica's place; the old files wait for their removal."""
        registry = self._manager.registry
        future = registry.future_logs[partition]
        source = registry.directory_of(partition)
        target = registry.directory_at(future.directory)
        future.rename_dir(str(partition))
        self._promoting = partition
        try:
            registry.notify_log_removal(partition)
        finally:
            self._promoting = None
        current = registry.remove(partition)
        registry.remove_future(partition)
        registry.add(partition, future, target)
        for listener in registry.on_log_moved:
            listener(partition, future)
        self._manager.deletion.retire_files(source, partition, current, DirectoryKind.DELETE)

    def _follow_truncation(self, partition: TopicPartition, current: UnifiedLog, future: UnifiedLog) -> None:
        """The original may have been truncated, or have lost its oldest records, since the last chunk.

        After a truncation it may have grown again with other records, so the copy starts over.
        """
        known = self._truncations.setdefault(partition, current.truncation_count)
        if known != current.truncation_count or not _is_within(current, future):
            self._truncations[partition] = current.truncation_count
            future.truncate_fully_and_start_at(current.log_start_offset)

    def _has_caught_up(self, partition: TopicPartition, current: UnifiedLog, future: UnifiedLog) -> bool:
        self._follow_truncation(partition, current, future)
        if future.log_end_offset < current.log_end_offset:
            piece = current.read(future.log_end_offset, _CATCH_UP_BYTES, current.log_end_offset).slice
            if piece is not None:
                self.quota.record(piece.size)
                append_copy(future, piece.read(), self._manager.clock.wall_ms())
        return future.log_end_offset == current.log_end_offset

    def _log_removed(self, partition: TopicPartition) -> None:
        if partition != self._promoting and partition in self._manager.registry.future_logs:
            self._manager.deletion.retire_future(partition)


class _Copy:
    """Fills the copy with one chunk, in the target directory's executor."""

    def __init__(
        self,
        moves: ReplicaAlterLogDirs,
        partition: TopicPartition,
        future: UnifiedLog,
        piece: FileSlice | None,
        directory: str,
    ) -> None:
        self._moves = moves
        self._partition = partition
        self._future = future
        self._piece = piece
        self._directory = directory
        self._size = 0

    def __call__(self) -> Finish | None:
        try:
            self._copy()
        except StorageFault as fault:
            if not is_disk_full(fault):
                raise
            reason = str(fault)
            return lambda: self._moves.give_up(self._partition, self._future, reason)
        return self._finish

    def _copy(self) -> None:
        with disk_faults(self._directory, f"copy {self._partition}"):
            if self._piece is not None:
                data = self._piece.read()
                self._size = len(data)
                append_copy(self._future, data, self._moves.wall_ms())
            if self._size < CHUNK_BYTES // 2:
                # Nearly level: what the original had synced must not depend on the page cache after the swap.
                self._future.sync_to(self._future.log_end_offset)

    def _finish(self) -> None:
        self._moves.chunk_copied(self._partition, self._future, self._size)


def append_copy(future: UnifiedLog, data: bytes, now_ms: int) -> None:
    future.append_as_follower(ByteSlice(data, 0, len(data)), now_ms=now_ms)
    future.write_staged()


def _is_within(current: UnifiedLog, future: UnifiedLog) -> bool:
    return current.log_start_offset <= future.log_end_offset <= current.log_end_offset
