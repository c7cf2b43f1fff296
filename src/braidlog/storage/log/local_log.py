"""What a partition's log consists of, shared by the modules that append, read, recover and reshape it."""

from __future__ import annotations

import logging
import os
import random
import threading
from typing import Final

from braidlog.config.log_settings import PRODUCER_CODEC, LogSettings
from braidlog.core.clock import Clock
from braidlog.core.errors import StorageFault
from braidlog.core.types import TopicPartition
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.log.leader_epoch_file_cache import LeaderEpochFileCache
from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.log.log_segments import LogSegments
from braidlog.storage.producers.producer_state_manager import ProducerStateManager
from braidlog.storage.producers.snapshot_files import SnapshotFiles
from braidlog.wire.records.compression import codec_named
from braidlog.wire.records.validation import AppendPolicy

_log = logging.getLogger(__name__)

# What a compressed batch may unfold to: far more than clients put into one, far less than a bomb is made for.
_DECOMPRESSED_AT_LEAST: Final = 32 << 20
_DECOMPRESSED_TIMES: Final = 16

# Shared by all logs: making a generator costs more than opening a log.
_JITTER: Final = random.Random()
# Data directories of which was said that they cannot reserve.
_warned_not_preallocated: Final[set[str]] = set()


class LocalLog:
    """log start offset <= high watermark <= log end offset <= next offset; the first two may also be equal to it."""

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
        files: Files,
        handles: HandlePool,
        clock: Clock,
        producer_expiration_ms: int,
        jitter: random.Random | None = None,
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.settings = settings
        self.policy = append_policy(settings)
        self.files = files
        self.handles = handles
        self.clock = clock
        self.segments = LogSegments()
        self.producers = ProducerStateManager(str(topic_partition), producer_expiration_ms)
        self.snapshots = SnapshotFiles(files, directory)
        self.epochs = LeaderEpochFileCache(files, directory)
        self.log_start_offset: int = 0
        # End of what is written: no reader sees past it.
        self.log_end_offset: int = 0
        # Where the next batch goes: past what is staged.
        self.next_offset: int = 0
        self.high_watermark: int = 0
        # Everything below survives a power cut.
        self.recovery_point: int = 0
        self.last_flush_ms: int = clock.wall_ms()
        # Held while files that a sync in another thread may look for change their names, and while the recovery
        # point moves. Cuts are counted, so that a sync that began before a truncation does not vouch for what was
        # appended after it.
        self.lock = threading.Lock()
        self.truncations = 0
        # Files were created, renamed or removed since the directory was last synced.
        self.directory_changed = True
        # Of a swap after compaction that a full disk keeps from being finished: the segments that came, those that
        # still have to go. Readers see the new ones already, under their `.swap` names.
        self.swapped_in: list[LogSegment] = []
        self.swapped_out: list[LogSegment] = []
        # The log's own directory is new, and its entry in the data directory not synced yet.
        self.entry_unsynced = True
        self._random = jitter if jitter is not None else _JITTER

    def fingerprint(self) -> tuple[int, int, int, int, int]:
        """Differs if anything was appended, cut, rolled, removed or led since."""
        items = self.segments.items
        first = items[0].base_offset if items else -1
        return (self.log_end_offset, first, len(items), self.truncations, self.epochs.latest)

    @property
    def data_directory(self) -> str:
        return os.path.dirname(self.directory)

    def fault(self, problem: OSError) -> StorageFault:
        """The disk's fault in the words that an operator needs."""
        reason = problem.strerror or str(problem)
        return StorageFault(self.data_directory, f"{self.topic_partition}: {reason}", problem)

    def new_segment(self, base_offset: int, suffix: str = "") -> LogSegment:
        # The cleaner's segments are written at once and to their end: nothing to set aside for later.
        reserve_bytes = self.settings.segment_bytes if self.settings.preallocate and not suffix else 0
        segment = LogSegment.create(
            self.files,
            self.handles,
            self.directory,
            base_offset,
            created_ms=self.clock.wall_ms(),
            suffix=suffix,
            interval_bytes=self.settings.index_interval_bytes,
            index_bytes=self.settings.segment_index_bytes,
            reserve_bytes=reserve_bytes,
        )
        if reserve_bytes and not segment.reserved:
            self._warn_not_preallocated(reserve_bytes)
        segment.jitter_ms = self.draw_jitter()
        self.directory_changed = True
        return segment

    def _warn_not_preallocated(self, size: int) -> None:
        """Once a data directory: appends go on as without preallocation, and fail when there is really no room."""
        if self.data_directory not in _warned_not_preallocated:
            _warned_not_preallocated.add(self.data_directory)
            _log.warning(
                "preallocate has no effect for %s: %s has no room for %d bytes, or its file system cannot reserve any",
                self.topic_partition,
                self.data_directory,
                size,
            )

    def open_segment(self, base_offset: int, suffix: str = "") -> LogSegment:
        segment = LogSegment.open(
            self.files,
            self.handles,
            self.directory,
            base_offset,
            created_ms=self.clock.wall_ms(),
            suffix=suffix,
            interval_bytes=self.settings.index_interval_bytes,
            index_bytes=self.settings.segment_index_bytes,
        )
        segment.jitter_ms = self.draw_jitter()
        return segment

    def move_to(self, directory: str) -> None:
        """Rename the log's directory."""
        with self.lock:
            self.files.rename(self.directory, directory)
            self.directory = directory
            for segment in self.segments.items:
                segment.move_to(directory)
            self.snapshots.move_to(directory)
            self.epochs.move_to(directory)
        self.files.sync_dir(self.data_directory)

    def draw_jitter(self) -> int:
        bound = min(self.settings.segment_jitter_ms, self.settings.segment_ms)
        return self._random.randrange(bound) if bound > 0 else 0

    def apply(self, settings: LogSettings) -> None:
        self.settings = settings
        self.policy = append_policy(settings)
        self.segments.active.interval_bytes = settings.index_interval_bytes


def _levels(settings: LogSettings) -> dict[str, int]:
    return {
        "gzip": settings.compression_gzip_level,
        "lz4": settings.compression_lz4_level,
        "zstd": settings.compression_zstd_level,
    }


def append_policy(settings: LogSettings) -> AppendPolicy:
    """What the topic's settings mean for the validation of appended records."""
    codec: int | None = None
    level: int | None = None
    if settings.compression_type != PRODUCER_CODEC:
        codec = codec_named(settings.compression_type)
        level = _levels(settings).get(settings.compression_type)
    return AppendPolicy(
        max_message_bytes=settings.max_message_bytes,
        compacted=settings.compacts,
        log_append_time=settings.uses_log_append_time,
        timestamp_before_max_ms=settings.message_timestamp_before_max_ms,
        timestamp_after_max_ms=settings.message_timestamp_after_max_ms,
        codec=codec,
        level=level,
        max_decompressed_bytes=max(_DECOMPRESSED_AT_LEAST, _DECOMPRESSED_TIMES * settings.max_message_bytes),
    )
