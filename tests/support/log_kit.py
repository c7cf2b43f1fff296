"""A partition log on a temporary directory, batches to put into it, and a disk that fails on request."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from pathlib import Path

from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import ManualClock
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.storage.files import DiskUsage, File, Files, OsFiles, Part
from braidlog.storage.handles import HandlePool
from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.log.segment_file_names import CLEANED_SUFFIX
from braidlog.storage.log.unified_log import LogAppendInfo, RecoveryProgress, UnifiedLog
from braidlog.storage.producers.producer_state_manager import ProducerStateEntry
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.reading import Record, read_records
from braidlog.wire.records.validation import ORIGIN_CLIENT, ORIGIN_COORDINATOR

PARTITION = TopicPartition("orders", 0)
START_MS = 1_700_000_000_000


def as_slice(data: bytes) -> ByteSlice:
    """In the middle of a larger buffer, as in a received frame."""
    return ByteSlice(b"head" + data + b"tail", 4, 4 + len(data))


def batch(
    *values: bytes,
    timestamp: int = START_MS,
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    transactional: bool = False,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    return build_batch(
        [Record(timestamp=timestamp + number, value=value) for number, value in enumerate(values)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


class Kit:
    """One partition's directory that logs are opened on, again and again."""

    def __init__(self, root: Path, files: Files | None = None, capacity: int = 64, **settings: object) -> None:
        self.data_directory = str(root)
        self.directory = f"{root}/{PARTITION}"
        self.path = Path(self.directory)
        self.files = files if files is not None else OsFiles()
        self.handles = HandlePool(self.files, capacity)
        self.clock = ManualClock(START_MS)
        self.settings = LogSettings(**settings)  # type: ignore[arg-type]

    def open(
        self,
        *,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        high_watermark: int = 0,
        progress: RecoveryProgress | None = None,
    ) -> UnifiedLog:
        return UnifiedLog.open(
            self.directory,
            PARTITION,
            self.settings,
            files=self.files,
            handles=self.handles,
            clock=self.clock,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            progress=progress,
            jitter=random.Random(1),
        )

    def stage(self, log: UnifiedLog, data: bytes, leader_epoch: int = 0, origin: int = ORIGIN_CLIENT) -> LogAppendInfo:
        return log.append_as_leader(as_slice(data), leader_epoch, now_ms=self.clock.wall_ms(), origin=origin)

    def append(self, log: UnifiedLog, data: bytes, leader_epoch: int = 0, origin: int = ORIGIN_CLIENT) -> LogAppendInfo:
        info = self.stage(log, data, leader_epoch, origin)
        log.write_staged()
        return info

    def values(
        self, log: UnifiedLog, *values: bytes, leader_epoch: int = 0, timestamp: int | None = None
    ) -> LogAppendInfo:
        """One batch, written."""
        when = self.clock.wall_ms() if timestamp is None else timestamp
        return self.append(log, batch(*values, timestamp=when), leader_epoch)

    def marker(
        self,
        log: UnifiedLog,
        producer_id: int,
        epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int = 0,
        leader_epoch: int = 0,
    ) -> LogAppendInfo:
        data = build_end_txn_marker(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp=self.clock.wall_ms(),
            coordinator_epoch=coordinator_epoch,
        )
        return self.append(log, data, leader_epoch, ORIGIN_COORDINATOR)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.directory))

    def name(self, base_offset: int, suffix: str) -> Path:
        return self.path / f"{base_offset:020d}{suffix}"


def producers_of(log: UnifiedLog) -> list[ProducerStateEntry]:
    return list(log.producer_state.producers.values())


def create_cleaned(kit: Kit, base_offset: int) -> LogSegment:
    """An empty segment of `.cleaned` files, as the cleaner fills one."""
    return LogSegment.create(
        kit.files,
        kit.handles,
        kit.directory,
        base_offset,
        created_ms=kit.clock.wall_ms(),
        suffix=CLEANED_SUFFIX,
        interval_bytes=kit.settings.index_interval_bytes,
        index_bytes=kit.settings.segment_index_bytes,
    )


def read_all(log: UnifiedLog, offset: int | None = None, max_bytes: int = 1 << 20) -> list[tuple[int, bytes | None]]:
    """(offset, value) of everything from `offset` on, read as a consumer would."""
    found: list[tuple[int, bytes | None]] = []
    at = log.log_start_offset if offset is None else offset
    first = at
    while True:
        piece = log.read(at, max_bytes, log.log_end_offset)
        if piece.slice is None:
            return found
        data = piece.slice.read()
        assert len(data) == piece.slice.size
        found += [(record.offset, record.value) for record in read_records(data) if record.offset >= first]
        assert piece.next_offset > at
        at = piece.next_offset


class FailingFile(File):
    def __init__(self, inner: File, disk: FailingDisk, path: str) -> None:
        self._inner = inner
        self._disk = disk
        self._path = path

    def writev(self, parts: Sequence[Part]) -> None:
        room = self._disk.room
        if room is not None and self._path.endswith(self._disk.only):
            data = b"".join(parts)
            if len(data) > room:
                self._inner.writev([data[:room]])
                self._disk.room = 0
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            self._disk.room = room - len(data)
        self._inner.writev(parts)

    def pread(self, size: int, position: int) -> bytes:
        if self._disk.unreadable:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return self._inner.pread(size, position)

    def size(self) -> int:
        return self._inner.size()

    def sync(self) -> None:
        if self._disk.unsyncable:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._disk.synced.append(self._path)

    def truncate(self, size: int) -> None:
        if self._disk.stuck:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self._inner.truncate(size)

    def reserve(self, size: int) -> bool:
        return self._inner.reserve(size)

    def close(self) -> None:
        self._inner.close()

    def fileno(self) -> int:
        return self._inner.fileno()


class FailingDisk(Files):
    """The operating system's files, on a disk that runs out of room or breaks when a test says so.

    Syncs are noted instead of done: no test cuts the power.
    """

    def __init__(self) -> None:
        self._inner = OsFiles()
        # Bytes that still fit; None for plenty. Only files whose path ends in `only` count.
        self.room: int | None = None
        self.only = ""
        self.unreadable = False
        self.unsyncable = False
        # Files can be neither cut nor created.
        self.stuck = False
        self.synced: list[str] = []

    def open_append(self, path: str) -> File:
        if self.stuck and not self._inner.exists(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return FailingFile(self._inner.open_append(path), self, path)

    def open_read(self, path: str) -> File:
        return FailingFile(self._inner.open_read(path), self, path)

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def is_dir(self, path: str) -> bool:
        return self._inner.is_dir(path)

    def listdir(self, path: str) -> list[str]:
        return self._inner.listdir(path)

    def mkdir(self, path: str) -> None:
        self._inner.mkdir(path)

    def rename(self, source: str, target: str) -> None:
        self._inner.rename(source, target)

    def sync_dir(self, path: str) -> None:
        self.synced.append(path)

    def remove(self, path: str) -> None:
        self._inner.remove(path)

    def rmtree(self, path: str) -> None:
        self._inner.rmtree(path)

    def size(self, path: str) -> int:
        return self._inner.size(path)

    def modified_ms(self, path: str) -> int:
        return self._inner.modified_ms(path)

    def set_modified_ms(self, path: str, when_ms: int) -> None:
        self._inner.set_modified_ms(path, when_ms)

    def read_bytes(self, path: str) -> bytes:
        return self._inner.read_bytes(path)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        if self.stuck:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if sync:
            self.synced.append(path)
        self._inner.write_atomic(path, data, sync=False)

    def disk_usage(self, path: str) -> DiskUsage:
        return self._inner.disk_usage(path)


def fill(kit: Kit, log: UnifiedLog, batches: int = 30) -> list[tuple[int, bytes | None]]:
    """Twelve batches of one record to a segment."""
    for number in range(batches):
        data = batch(b"%015d" % number, timestamp=kit.clock.wall_ms(), producer_id=5, epoch=0, sequence=number)
        kit.append(log, data)
        kit.clock.advance(1)
    return read_all(log)


def crashed(kit: Kit, batches: int = 30) -> list[tuple[int, bytes | None]]:
    """A log that was written to and never closed."""
    log = kit.open()
    content = fill(kit, log, batches)
    log.close(flush=False)
    return content
