"""Logs and segments that are gone for readers: renamed at once, removed after `file.delete.delay.ms`."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from braidlog.core.clock import Clock
from braidlog.core.errors import StorageFault, is_disk_full
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.directory_names import DirectoryKind, marked_name
from braidlog.storage.dirs.log_dir_failures import LogDirFailure, LogDirFailureHandler
from braidlog.storage.dirs.log_directory import LogDirectory
from braidlog.storage.dirs.log_registry import LogRegistry
from braidlog.storage.dirs.text_files import disk_faults
from braidlog.storage.files import Files
from braidlog.storage.jobs import Finish, Work
from braidlog.storage.log.unified_log import DeletedSegment, UnifiedLog

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Unrenamed:
    """A directory that is to get the name of `kind`, for which the disk had no room."""

    path: str
    partition: TopicPartition
    directory: LogDirectory
    kind: DirectoryKind


class LogDeletion:
    """Owned by the thread that owns the logs."""

    def __init__(
        self,
        registry: LogRegistry,
        failures: LogDirFailureHandler,
        *,
        files: Files,
        clock: Clock,
        new_id: Callable[[], bytes],
        delete_delay_ms: int,
    ) -> None:
        # log.segment.delete.delay.ms, for whole logs; segments go by their topic's file.delete.delay.ms.
        self.delete_delay_ms = delete_delay_ms
        self._registry = registry
        self._failures = failures
        self._files = files
        self._new_id = new_id
        self._queue = _DeletionQueue(clock)
        self._unrenamed: list[_Unrenamed] = []
        failures.on_directory_failed.append(self._directory_failed)

    def __len__(self) -> int:
        """How many removals wait."""
        return len(self._queue)

    def retire(self, partition: TopicPartition, kind: DirectoryKind) -> None:
        """Take the partition's current log out of service; its directory gets the name of `kind`."""
        directory = self._registry.directory_of(partition)
        self._registry.notify_log_removal(partition)
        log = self._registry.remove(partition)
        self._registry.topic_ids.pop(partition, None)
        with self._failures.reporting(directory.path, f"retire {partition}"):
            self.retire_files(directory, partition, log, kind)

    def retire_future(self, partition: TopicPartition) -> None:
        """Give up a copy that has not taken its original's place yet, if there is one."""
        future = self._registry.remove_future(partition)
        if future is not None:
            directory = self._registry.directory_at(future.directory)
            with self._failures.reporting(directory.path, f"retire {future.directory}"):
                self.retire_files(directory, partition, future, DirectoryKind.DELETE)

    def retire_unopened(self, partition: TopicPartition) -> None:
        """A log that start-up could not open for want of room."""
        found = self._registry.unopened.pop(partition)
        directory = self._registry.directory_at(found.path)
        self._unrenamed.append(_Unrenamed(found.path, partition, directory, DirectoryKind.DELETE))
        with self._failures.reporting(directory.path, f"retire {partition}"):
            self.rename_unrenamed(partition)

    def retire_files(
        self, directory: LogDirectory, partition: TopicPartition, log: UnifiedLog, kind: DirectoryKind
    ) -> None:
        """Rename and close a log that is no longer registered; queue the removal where its name says so.

        Without room for the new name that is tried again: under the old one nothing new may be made meanwhile.
        """
        name = marked_name(partition, kind, self._new_id)
        path = log.directory
        try:
            with disk_faults(directory.path, f"rename {partition}"):
                log.rename_dir(name)
        except StorageFault as fault:
            if is_disk_full(fault) and self._files.exists(path):
                self._unrenamed.append(_Unrenamed(path, partition, directory, kind))
            raise
        finally:
            log.close(flush=False)
        if kind is DirectoryKind.DELETE:
            self.remove_later(directory, f"{directory.path}/{name}", self.delete_delay_ms)

    def is_unrenamed(self, partition: TopicPartition) -> bool:
        """Whether an older log of the partition has its name still."""
        return any(unrenamed.partition == partition for unrenamed in self._unrenamed)

    def rename_unrenamed(self, partition: TopicPartition | None = None) -> None:
        """Rename what could not be renamed before, of this partition or of all; raises StorageFault."""
        for unrenamed in self._unrenamed[:]:
            if partition is not None and unrenamed.partition != partition:
                continue
            name = marked_name(unrenamed.partition, unrenamed.kind, self._new_id)
            directory = unrenamed.directory.path
            with disk_faults(directory, f"rename {unrenamed.partition}"):
                if self._files.exists(unrenamed.path):
                    self._files.rename(unrenamed.path, f"{directory}/{name}")
                    self._files.sync_dir(directory)
            self._unrenamed.remove(unrenamed)
            if unrenamed.kind is DirectoryKind.DELETE:
                self.remove_later(unrenamed.directory, f"{directory}/{name}", self.delete_delay_ms)

    def remove_later(self, directory: LogDirectory, path: str, delay_ms: int) -> None:
        """A directory that carries the name of a deleted log."""
        files = self._files

        def remove() -> None:
            files.rmtree(path)

        self._queue.add(directory.path, path, delay_ms, remove)

    def remove_segments_later(
        self, partition: TopicPartition, log: UnifiedLog, segments: Sequence[DeletedSegment]
    ) -> None:
        directory = self._registry.directory_of(partition).path
        for segment in segments:
            what = f"{partition} segment {segment.base_offset}"
            self._queue.add(directory, what, log.settings.file_delete_delay_ms, segment.remove)

    def due(self) -> Iterator[Work]:
        """What has waited long enough to be removed; raises StorageFault."""
        self.rename_unrenamed()
        yield from self._queue.due()

    def _directory_failed(self, failure: LogDirFailure) -> None:
        """A failed directory takes its removals with it; the next start finds the files by their names."""
        self._queue.forget_directory(failure.path)
        self._unrenamed = [unrenamed for unrenamed in self._unrenamed if unrenamed.directory.path != failure.path]


class _DeletionQueue:
    """Removals in the order they fall due."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[tuple[float, int, str, str, Callable[[], None]]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, directory: str, what: str, delay_ms: int, remove: Callable[[], None]) -> None:
        """`remove` is called in the executor of `directory`, `delay_ms` from now at the earliest."""
        self._sequence += 1
        due = self._clock.monotonic() + delay_ms / 1000
        heapq.heappush(self._waiting, (due, self._sequence, directory, what, remove))

    def due(self) -> Iterator[Work]:
        now = self._clock.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, directory, what, remove = heapq.heappop(self._waiting)
            yield Work(directory, f"delete {what}", _Removal(what, remove))

    def forget_directory(self, directory: str) -> None:
        self._waiting = [entry for entry in self._waiting if entry[2] != directory]
        heapq.heapify(self._waiting)


class _Removal:
    def __init__(self, what: str, remove: Callable[[], None]) -> None:
        self._what = what
        self._remove = remove

    def __call__(self) -> Finish | None:
        try:
            self._remove()
        except OSError as problem:
            # Not worth a directory: the space is reclaimed at the next start.
            _log.warning("Could not delete %s: %s", self._what, problem)
        return None
