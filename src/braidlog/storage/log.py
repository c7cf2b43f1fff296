"""One partition replica: its segments, its offsets, and what may be appended, read and removed.

Skeleton of the public face; bodies follow.

    log start offset <= last stable offset <= high watermark <= log end offset <= next offset

The log end offset is the end of what is written and readable; the next offset also counts what is staged.
All calls come from the thread that owns the log, except `sync_to`, which may run in an executor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import Clock
from braidlog.core.slices import ByteSlice, FileSlice
from braidlog.core.types import TopicPartition
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.segment import Segment
from braidlog.wire.records.validation import LATEST_PRODUCE_VERSION, ORIGIN_CLIENT


class AppendInfo:
    """What became of one append; readable only after `write_staged`."""

    __slots__ = (
        "converted",
        "count",
        "duplicate",
        "first_offset",
        "last_offset",
        "leader_epoch",
        "log_append_time",
        "log_start_offset",
        "max_timestamp",
        "offset_of_max_timestamp",
        "rolled",
        "size",
        "source_codec",
    )

    first_offset: int
    last_offset: int
    count: int
    size: int
    max_timestamp: int
    offset_of_max_timestamp: int
    # -1 unless the topic stamps records itself (message.timestamp.type=LogAppendTime).
    log_append_time: int
    log_start_offset: int
    leader_epoch: int
    # The batch was there already: the offsets are the earlier ones and nothing was staged.
    duplicate: bool
    # This append began a new segment: what lies before `first_offset` wants `sync_to(first_offset)`.
    rolled: bool
    source_codec: int
    converted: bool


class LogRead:
    """Whole batches from the one that holds the asked offset on; `slice` is None where there is nothing to read."""

    __slots__ = ("first_batch_size", "next_offset", "slice")

    slice: FileSlice | None
    # Where to read on: after the last batch of the slice; -1 where that is not known.
    next_offset: int
    # Size of the first batch when it alone exceeds max_bytes (whether or not it is returned), else 0.
    first_batch_size: int


@dataclass(frozen=True)
class TimestampOffset:
    timestamp: int
    offset: int
    leader_epoch: int


@dataclass(frozen=True)
class AbortedTransaction:
    producer_id: int
    first_offset: int


@dataclass(frozen=True)
class LostRange:
    """Bytes that could not be kept: `first_offset` is the first offset lost, `end_offset` the first not lost."""

    path: str
    position: int
    size: int
    first_offset: int
    end_offset: int | None
    reason: str
    # Where the bytes were saved; None only for an incomplete last batch on a disk with no room left.
    saved_as: str | None


@dataclass
class RecoveryReport:
    clean: bool = True
    segments_scanned: int = 0
    bytes_scanned: int = 0
    lost: list[LostRange] = field(default_factory=list)
    rebuilt_indexes: list[str] = field(default_factory=list)
    removed_files: list[str] = field(default_factory=list)


# (partition, segments done, segments to do, bytes done, bytes to do)
RecoveryProgress = Callable[[TopicPartition, int, int, int, int], None]


class DeletedSegment:
    """A segment whose files carry `.deleted`; `remove()` them once `file.delete.delay.ms` has passed."""

    base_offset: int
    size: int
    paths: list[str]

    def remove(self) -> None:
        raise NotImplementedError


class Log:
    directory: str
    topic_partition: TopicPartition
    settings: LogSettings
    recovery: RecoveryReport
    log_start_offset: int
    log_end_offset: int
    next_offset: int
    high_watermark: int
    recovery_point: int
    last_flush_ms: int

    @staticmethod
    def open(
        directory: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
        *,
        files: Files,
        handles: HandlePool,
        clock: Clock,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        high_watermark: int = 0,
        clean: bool = False,
        producer_expiration_ms: int = 86_400_000,
        progress: RecoveryProgress | None = None,
    ) -> Log:
        """Load, repair and recover; creates the directory if it is missing. `log.recovery` says what was done."""
        raise NotImplementedError

    # --- append
    def append_as_leader(
        self,
        records: ByteSlice,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: int = ORIGIN_CLIENT,
        produce_version: int = LATEST_PRODUCE_VERSION,
    ) -> AppendInfo:
        raise NotImplementedError

    def append_as_follower(self, records: ByteSlice, *, now_ms: int) -> AppendInfo:
        raise NotImplementedError

    @property
    def has_staged(self) -> bool:
        raise NotImplementedError

    def write_staged(self) -> None:
        """Write all that is staged; on StorageFault every append staged since the last write is undone."""
        raise NotImplementedError

    # --- read
    def read(self, offset: int, max_bytes: int, limit_offset: int, min_one_batch: bool = True) -> LogRead:
        raise NotImplementedError

    def offset_for_timestamp(self, timestamp: int, limit_offset: int | None = None) -> TimestampOffset | None:
        raise NotImplementedError

    def max_timestamp_offset(self) -> TimestampOffset | None:
        raise NotImplementedError

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTransaction]:
        raise NotImplementedError

    # --- offsets
    @property
    def last_stable_offset(self) -> int:
        raise NotImplementedError

    def advance_high_watermark(self, offset: int) -> bool:
        raise NotImplementedError

    def increment_log_start_offset(self, offset: int) -> bool:
        raise NotImplementedError

    def assign_leader_epoch(self, epoch: int, start_offset: int) -> None:
        raise NotImplementedError

    @property
    def latest_epoch(self) -> int:
        raise NotImplementedError

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) as OffsetForLeaderEpoch answers (KIP-320)."""
        raise NotImplementedError

    # --- segments
    @property
    def segments(self) -> list[Segment]:
        """Oldest first, the active one last; a copy."""
        raise NotImplementedError

    @property
    def size(self) -> int:
        raise NotImplementedError

    def roll(self) -> Segment:
        raise NotImplementedError

    def delete_segments(self, count: int) -> list[DeletedSegment]:
        """Retire the `count` oldest segments (rolling first if that is all) and move the log start offset."""
        raise NotImplementedError

    def create_cleaned(self, base_offset: int) -> Segment:
        """An empty segment of `.cleaned` files, for the cleaner to fill."""
        raise NotImplementedError

    def replace_segments(self, new: list[Segment], old: list[Segment]) -> list[DeletedSegment]:
        """Swap `.cleaned` segments in for `old` such that a crash leaves either all of the old or all of the new."""
        raise NotImplementedError

    # --- durability, life cycle
    @property
    def unflushed_messages(self) -> int:
        raise NotImplementedError

    def sync_to(self, offset: int) -> None:
        """Make everything below `offset` survive a power cut and move the recovery point there. Any thread."""
        raise NotImplementedError

    def truncate_to(self, offset: int) -> bool:
        raise NotImplementedError

    def truncate_fully_and_start_at(self, offset: int) -> None:
        raise NotImplementedError

    def remove_expired_producers(self, now_ms: int) -> int:
        raise NotImplementedError

    def update_settings(self, settings: LogSettings) -> None:
        raise NotImplementedError

    def rename_dir(self, name: str) -> None:
        """The directory gets this name beside its old one; open slices stay readable."""
        raise NotImplementedError

    def close(self, *, flush: bool = True) -> None:
        """Complete indexes, snapshot producer state, sync everything; with `flush` false just let go of files."""
        raise NotImplementedError
