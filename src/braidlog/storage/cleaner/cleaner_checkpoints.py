"""How far each log is compacted: the cleaner's offset checkpoints, one file a data directory."""

from __future__ import annotations

from collections.abc import Iterator

from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.checkpointing import CheckpointWrite
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.dirs.offset_checkpoint_file import CLEANER_OFFSETS, Offsets
from braidlog.storage.jobs import Work


class CleanerCheckpoints:
    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        # By directory path: where the dirty part of each log begins.
        self._dirty: dict[str, Offsets] = {}
        # How often each log had been truncated when that was last true.
        self._truncations: dict[TopicPartition, int] = {}
        # Directories whose checkpoint one worker is writing, and those where another has something to add to it.
        self._writing: set[str] = set()
        self._unwritten: set[str] = set()

    def first_dirty_offset(self, partition: TopicPartition) -> int | None:
        """Where the log's dirty part begins; None if it was never compacted, or truncated since."""
        log = self._manager.get(partition)
        if log is None:
            return None
        directory = self._manager.registry.directory_of(partition)
        if directory.path not in self._dirty:
            self._dirty[directory.path] = dict(directory.read_checkpoint(CLEANER_OFFSETS))
        truncations = log.truncation_count
        if self._truncations.setdefault(partition, truncations) != truncations:
            # Other records may have taken the place of those that were compacted.
            self._truncations[partition] = truncations
            self._dirty[directory.path].pop(partition, None)
        return self._dirty[directory.path].get(partition)

    def record(self, partition: TopicPartition, offset: int) -> None:
        """The log is compacted up to `offset`; in the file after `write`."""
        self._dirty[self._manager.registry.directory_of(partition).path][partition] = offset

    def forget(self, partition: TopicPartition) -> None:
        for offsets in self._dirty.values():
            offsets.pop(partition, None)
        self._truncations.pop(partition, None)

    def write(self, path: str) -> Iterator[Work]:
        """One writer a directory: two of them could leave the older of two versions behind."""
        self._unwritten.add(path)
        if path in self._writing:
            return
        self._writing.add(path)
        try:
            while path in self._unwritten:
                self._unwritten.discard(path)
                yield self._write_of(path)
        finally:
            self._writing.discard(path)

    def _write_of(self, path: str) -> Work:
        directory = self._manager.registry.directory_named(path)
        known = self._dirty.get(path, {})
        here = self._manager.registry.logs_in(directory)
        offsets = {partition: offset for partition, offset in known.items() if partition in here}
        self._dirty[path] = offsets
        return Work(path, f"write {CLEANER_OFFSETS}", CheckpointWrite(directory, CLEANER_OFFSETS, dict(offsets)))
