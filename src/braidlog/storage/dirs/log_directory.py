"""One data directory (an entry of `log.dirs`): who owns it, its checkpoints, and whether it still works."""

from __future__ import annotations

import itertools
import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from braidlog.core.errors import CorruptLogError, StorageFault, UserError, is_disk_full
from braidlog.core.ids import random_id
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs import lost_replicas
from braidlog.storage.dirs.directory_lock import DirectoryLock
from braidlog.storage.dirs.lost_replicas import LostReplica, decode_lost_replicas, encode_lost_replicas
from braidlog.storage.dirs.meta_properties import (
    FILE_NAME,
    MetaProperties,
    claim,
    decode_meta_properties,
    encode_meta_properties,
)
from braidlog.storage.dirs.offset_checkpoint_file import CHECKPOINT_NAMES, OffsetCheckpointFile, Offsets
from braidlog.storage.dirs.text_files import disk_faults, read_text, write_durably
from braidlog.storage.files import DiskUsage, Files

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"

_log = logging.getLogger(__name__)

LockDirectory = Callable[[str], DirectoryLock]


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """What DescribeLogDirs says of one data directory."""

    path: str
    # Why it is offline; then the rest is unknown.
    failure: str | None
    total_bytes: int = -1
    usable_bytes: int = -1


class LogDirectory:
    """`failure` says why it is offline; none while it works. Partition counts are kept by the manager."""

    def __init__(self, path: str, files: Files, lock: LockDirectory, new_id: Callable[[], bytes] = random_id) -> None:
        self.path = path
        self.failure: str | None = None
        self.properties: MetaProperties | None = None
        # What the cluster counted on when the directory was formatted.
        self.lost_replicas: Sequence[LostReplica] = ()
        self.partition_count = 0
        # Of the last stop: whether it was clean, and the broker epoch it ran under (KIP-966; none before 3.8).
        self.stopped_cleanly = False
        self.previous_broker_epoch: int | None = None
        self._marker_stays = False
        self._files = files
        self._take_lock = lock
        self._new_id = new_id
        self._lock: DirectoryLock | None = None
        self._checkpoints = {name: OffsetCheckpointFile(files, path, name) for name in CHECKPOINT_NAMES}
        # What each checkpoint file is known to hold, so that a new log never inherits a dead namesake's offsets.
        self._written: dict[str, Offsets] = {name: {} for name in CHECKPOINT_NAMES}
        # Checkpoints are put together in one order and may be written, by several threads, in another.
        self._numbers = itertools.count(1)
        self._written_numbers = dict.fromkeys(CHECKPOINT_NAMES, 0)
        self._writing = threading.Lock()

    @property
    def is_online(self) -> bool:
        return self.failure is None

    def holds(self, path: str) -> bool:
        return path == self.path or path.startswith(self.path.rstrip("/") + "/")

    @property
    def clean_shutdown_path(self) -> str:
        return f"{self.path}/{CLEAN_SHUTDOWN}"

    # --- ownership
    def open(self) -> None:
        """Create, lock and read who it belongs to; StorageFault if the disk refuses, UserError if it is in use."""
        with disk_faults(self.path, "create the directory"):
            self._files.mkdir(self.path)
            self._files.listdir(self.path)
        self._lock = self._take_lock(self.path)
        path = f"{self.path}/{FILE_NAME}"
        text = read_text(self._files, self.path, path)
        if text is not None:
            try:
                self.properties = decode_meta_properties(text, path)
            except CorruptLogError as problem:
                raise UserError(f"{problem}: restore the file from another data directory of this broker") from None
        path = f"{self.path}/{lost_replicas.FILE_NAME}"
        text = read_text(self._files, self.path, path)
        if text is not None:
            try:
                self.lost_replicas = decode_lost_replicas(text, path)
            except CorruptLogError as problem:
                raise UserError(f"{problem}: correct or remove the line") from None

    @property
    def is_formatted(self) -> bool:
        return self.properties is not None

    def claim(self, cluster_id: str, node_id: int, wall_ms: int, counted_on: Sequence[LostReplica] = ()) -> None:
        """Write down that the directory is ours; UserError if it belongs to another cluster or broker.

        `counted_on` are the replicas of this broker that are in sync as far as the cluster knows: a directory that is
        formatted now may have had them.
        """
        if not self.is_formatted and counted_on:
            path = f"{self.path}/{lost_replicas.FILE_NAME}"
            # Known at once: a full disk that refuses the file leaves the directory in use, and unformatted.
            self.lost_replicas = counted_on
            write_durably(self._files, self.path, path, encode_lost_replicas(counted_on))
        path = f"{self.path}/{FILE_NAME}"
        wanted = claim(self.properties, cluster_id, node_id, path)
        if wanted.version == 1 and wanted.directory_id is None:
            wanted = MetaProperties(1, wanted.cluster_id, wanted.node_id, self._new_id())
        if wanted != self.properties:
            write_durably(self._files, self.path, path, encode_meta_properties(wanted, wall_ms))
            self.properties = wanted

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    # --- how the last run ended
    def take_clean_shutdown(self) -> bool:
        """Read and remove the marker, so that a crash during loading counts as one."""
        text = read_text(self._files, self.path, self.clean_shutdown_path)
        self.stopped_cleanly = text is not None
        if text is None:
            return False
        try:
            content = json.loads(text) if text.strip() else {}
            epoch = content.get("brokerEpoch")
            self.previous_broker_epoch = epoch if isinstance(epoch, int) else None
        except (ValueError, AttributeError):
            _log.warning("%s has no readable content; only its presence counts", self.clean_shutdown_path)
        try:
            self._remove_clean_shutdown()
        except StorageFault as fault:
            # Some file systems need room even to remove: each checkpoint tries again.
            if not is_disk_full(fault):
                raise
            _log.error("%s", fault)
            self._marker_stays = True
        return True

    def _remove_clean_shutdown(self) -> None:
        with disk_faults(self.path, f"remove {self.clean_shutdown_path}"):
            if self._files.exists(self.clean_shutdown_path):
                self._files.remove(self.clean_shutdown_path)
            # Were the removal lost to a power cut, the logs that it will have torn would be taken for whole.
            self._files.sync_dir(self.path)
        self._marker_stays = False

    def mark_clean_shutdown(self, broker_epoch: int) -> None:
        content = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
        write_durably(self._files, self.path, self.clean_shutdown_path, content)

    # --- checkpoints
    def read_checkpoint(self, name: str) -> Offsets:
        offsets = self._checkpoints[name].read()
        self._written[name] = offsets
        return offsets

    def checkpoint_problems(self) -> list[str]:
        return [c.problem for c in self._checkpoints.values() if c.problem is not None]

    def number_checkpoint(self) -> int:
        """To be taken when the offsets are, where they are not written at once."""
        return next(self._numbers)

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int], number: int | None = None) -> None:
        """Blocks; skipped where the file already says the same, or something newer. Any thread."""
        with self._writing:
            if number is None:
                number = next(self._numbers)
            if number < self._written_numbers[name]:
                return
            if self._marker_stays:
                self._remove_clean_shutdown()
            if self._written[name] != offsets:
                self._checkpoints[name].write(offsets)
                self._written[name] = dict(offsets)
            self._written_numbers[name] = number

    def remembers(self, partition: TopicPartition) -> bool:
        """Whether a checkpoint speaks of a log of this name."""
        return any(partition in written for written in self._written.values())

    def forget(self, partition: TopicPartition) -> None:
        """A new log is about to take this name: no checkpoint may speak of an older one."""
        for name, written in self._written.items():
            if partition in written:
                self.write_checkpoint(name, {key: value for key, value in written.items() if key != partition})

    def disk_usage(self) -> DiskUsage:
        with disk_faults(self.path, "read the free space"):
            return self._files.disk_usage(self.path)

    def describe(self) -> LogDirDescription:
        if not self.is_online:
            return LogDirDescription(self.path, self.failure)
        try:
            usage = self.disk_usage()
        except StorageFault as fault:
            return LogDirDescription(self.path, fault.reason)
        return LogDirDescription(self.path, None, usage.total, usage.free)

    def fail(self, fault: StorageFault) -> None:
        if self.failure is None:
            self.failure = fault.reason
