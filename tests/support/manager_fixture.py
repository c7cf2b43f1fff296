"""A log manager on real directories, one thread, a clock that a test moves, and files that can be made to fail."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path

from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import ManualClock
from braidlog.core.ids import parse_id
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.dirs.offset_checkpoint_file import START_OFFSETS
from braidlog.storage.files import File, OsFiles
from braidlog.storage.handles import HandlePool
from braidlog.storage.jobs import InlineExecutor, Work, run_inline
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.storage.settings import StorageSettings
from braidlog.wire.records.builder import build_batch
from braidlog.wire.records.reading import Record, read_records

NOW = 1_700_000_000_000
TOPIC_ID = parse_id("AAECAwQFBgcICQoLDA0ODw")


class FailingFiles(OsFiles):
    """The operating system's files, of which everything below `broken` answers EIO, and what is written below
    `full`, or renamed or removed while there is `no_room_for_names`, answers ENOSPC."""

    def __init__(self) -> None:
        self.broken: list[str] = []
        self.full: list[str] = []
        self.no_room_for_names = False

    def _check(self, path: str) -> None:
        if any(path == place or path.startswith(place + "/") for place in self.broken):
            raise OSError(errno.EIO, "Input/output error", path)

    def _check_room(self, path: str) -> None:
        if any(path.startswith(place + "/") for place in self.full):
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def open_append(self, path: str) -> File:
        self._check(path)
        self._check_room(path)
        return super().open_append(path)

    def open_read(self, path: str) -> File:
        self._check(path)
        return super().open_read(path)

    def listdir(self, path: str) -> list[str]:
        self._check(path)
        return super().listdir(path)

    def mkdir(self, path: str) -> None:
        self._check(path)
        self._check_room(path)
        super().mkdir(path)

    def rename(self, source: str, target: str) -> None:
        self._check(source)
        self._check_names(source)
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._check_names(path)
        super().remove(path)

    def _check_names(self, path: str) -> None:
        if self.no_room_for_names:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    def read_bytes(self, path: str) -> bytes:
        self._check(path)
        return super().read_bytes(path)

    def write_atomic(self, path: str, data: bytes, *, sync: bool = True) -> None:
        self._check(path)
        self._check_room(path)
        super().write_atomic(path, data, sync=sync)


class Broker:
    """What a broker does with its manager, in one thread."""

    def __init__(
        self, *directories: Path, clock: ManualClock | None = None, settings: StorageSettings | None = None
    ) -> None:
        self.clock = clock or ManualClock(NOW)
        self.files = FailingFiles()
        self.topic_settings: dict[str, LogSettings] = {}
        self.manager = LogManager(
            [str(path) for path in directories],
            settings_of=lambda topic: self.topic_settings.get(topic, LogSettings()),
            executor_of=lambda path: InlineExecutor(),
            files=self.files,
            handles=HandlePool(self.files, 64),
            clock=self.clock,
            settings=settings,
        )

    def start(self) -> Broker:
        self.manager.open()
        self.manager.claim("cluster", 1)
        self.manager.load()
        return self

    def run(self, work: Iterable[Work | None]) -> int:
        return run_inline(work, self.manager.failures.fail)

    def crash(self) -> None:
        """The process is gone: only the locks are let go, as the system would."""
        self.manager.release()


def append(log: UnifiedLog, *pairs: tuple[str | None, str | None], timestamp: int = NOW) -> None:
    records = [
        Record(
            timestamp=timestamp,
            key=None if key is None else key.encode(),
            value=None if value is None else value.encode(),
        )
        for key, value in pairs
    ]
    data = build_batch(records)
    log.append_as_leader(ByteSlice(data, 0, len(data)), 0, now_ms=timestamp)
    log.write_staged()
    log.advance_high_watermark(log.log_end_offset)


def content(log: UnifiedLog) -> list[tuple[int, bytes | None]]:
    """(offset, value) of every record a reader sees."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 1 << 20, log.log_end_offset).slice
        if piece is None:
            break
        records = read_records(piece.read())
        found += [(record.offset, record.value) for record in records if record.offset >= offset]
        last = log.read(offset, 1 << 20, log.log_end_offset).next_offset
        if last <= offset:
            break
        offset = last
    return found


def tp(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


def crashed_without_room(tmp_path: Path) -> Broker:
    """Started after a crash: x cannot be opened for want of room, y can."""
    before = Broker(tmp_path).start()
    for name in ("x", "y"):
        log = before.manager.create(tp(name), topic_id=TOPIC_ID)
        append(log, ("k", "1"))
        append(log, ("k", "2"))
        log.increment_log_start_offset(1)
    before.run(before.manager.checkpoints.writes(START_OFFSETS))
    before.crash()
    broker = Broker(tmp_path)
    broker.files.full.append(str(tmp_path / "x-0"))
    return broker.start()
