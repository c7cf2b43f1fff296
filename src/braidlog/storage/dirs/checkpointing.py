"""The offset checkpoints of the data directories: what they say of each log, and when they are written."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Executor
from typing import Final

from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.log_directory import LogDirectory
from braidlog.storage.dirs.log_registry import FoundLog, LogRegistry
from braidlog.storage.dirs.offset_checkpoint_file import HIGH_WATERMARKS, RECOVERY_POINTS, START_OFFSETS, Offsets
from braidlog.storage.dirs.text_files import disk_faults
from braidlog.storage.jobs import Finish, Work
from braidlog.storage.log.unified_log import UnifiedLog

_LOGS_PER_TASK: Final = 64


def _checkpointed_offset(log: UnifiedLog | FoundLog, name: str) -> int | None:
    """The log's entry in the checkpoint `name`, none where it needs none; of one that is not open, what it was."""
    if name == RECOVERY_POINTS:
        return log.recovery_point
    if name == HIGH_WATERMARKS:
        return log.high_watermark
    if name == START_OFFSETS:
        # The first segment's base says it as well, unless records inside the segment were deleted.
        if isinstance(log, FoundLog):
            return log.start_offset if log.start_offset > 0 else None
        return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None
    raise ValueError(f"{name} is not kept by the log manager")


class OffsetCheckpoints:
    """The checkpoints of all directories, as they are to be written now."""

    def __init__(self, registry: LogRegistry) -> None:
        self._registry = registry

    def offsets(self, name: str) -> dict[str, Offsets]:
        """What the checkpoint `name` should say, by directory path; cheap, on the owning thread."""
        registry = self._registry
        offsets: dict[str, Offsets] = {directory.path: {} for directory in registry.online_directories}
        for partition, log in registry.logs.items():
            offset = _checkpointed_offset(log, name)
            if offset is not None:
                offsets[registry.directory_of(partition).path][partition] = offset
        for partition, found in registry.unopened.items():
            offset = _checkpointed_offset(found, name)
            if offset is not None:
                offsets[registry.directory_at(found.path).path][partition] = offset
        return offsets

    def writes(self, name: str) -> list[Work]:
        """One for each directory."""
        named = self._registry.directory_named
        return [
            Work(path, f"write {name}", CheckpointWrite(named(path), name, offsets))
            for path, offsets in self.offsets(name).items()
        ]

    def writes_after_truncation(self, directories: Collection[str]) -> list[Work]:
        """Before anything is appended to logs that were truncated below what a checkpoint says of them.

        After a crash it would be taken for what the checkpoint speaks of: synced, committed, or deleted.
        """
        return [
            work
            for name in (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS)
            for work in self.writes(name)
            if work.directory in directories
        ]


class CheckpointWrite:
    """The blocking half of writing one checkpoint."""

    def __init__(self, directory: LogDirectory, name: str, offsets: Offsets) -> None:
        self._directory = directory
        self._name = name
        self._offsets = offsets
        self._number = directory.number_checkpoint()

    def __call__(self) -> Finish | None:
        if self._directory.is_online:
            self._directory.write_checkpoint(self._name, self._offsets, self._number)
        return None


class CleanShutdown:
    """Closes all logs of a directory in its executor, then writes its checkpoints, then the mark that says so.

    A StorageFault on the way, or a log that could not even be opened, leaves no mark, and the next start checks them.
    """

    def __init__(
        self,
        directory: LogDirectory,
        logs: Mapping[TopicPartition, UnifiedLog],
        futures: Sequence[UnifiedLog],
        unopened: Mapping[TopicPartition, FoundLog],
        executor: Executor,
    ) -> None:
        self._directory = directory
        self._logs = logs
        self._unopened = unopened
        self._executor = executor
        every = [*logs.values(), *futures]
        # Several tasks, so that the syncs of a directory with several threads overlap.
        self._tasks = [
            executor.submit(self._close_some, every[first : first + _LOGS_PER_TASK])
            for first in range(0, len(every), _LOGS_PER_TASK)
        ]

    def finish(self, broker_epoch: int, *, mark: bool) -> None:
        """Blocks until it is done."""
        for task in self._tasks:
            task.result()
        self._executor.submit(self._write_checkpoints).result()
        if mark and not self._unopened:
            self._executor.submit(self._directory.mark_clean_shutdown, broker_epoch).result()

    def _close_some(self, logs: Sequence[UnifiedLog]) -> None:
        with disk_faults(self._directory.path, "close the logs"):
            for log in logs:
                log.close()

    def _write_checkpoints(self) -> None:
        for name in (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS):
            offsets: Offsets = {}
            logs: dict[TopicPartition, UnifiedLog | FoundLog] = {**self._logs, **self._unopened}
            for partition, log in logs.items():
                offset = _checkpointed_offset(log, name)
                if offset is not None:
                    offsets[partition] = offset
            self._directory.write_checkpoint(name, offsets)
