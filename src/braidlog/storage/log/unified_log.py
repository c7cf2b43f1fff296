"""One partition replica: what may be appended to it, read from it and removed.

    log start offset <= last stable offset <= high watermark <= log end offset <= next offset

The log end offset is the end of what is written and may be read; the next offset also counts what is staged.
All calls come from the thread that owns the log, except `sync_to`, which may run in an executor. A `StorageFault` out
of any call means that nothing staged since the last successful write is in the log.
"""

from __future__ import annotations

import random

from braidlog.config.log_settings import LogSettings
from braidlog.config.message_format import NEWEST_FORMAT
from braidlog.core.clock import Clock
from braidlog.core.errors import StorageFault, is_disk_full
from braidlog.core.protocol_errors import OffsetOutOfRangeError
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.transaction_index import AbortedTxn
from braidlog.storage.log.append import LogAppender, LogAppendInfo, UnexpectedOffsetError, append_policy
from braidlog.storage.log.local_log import DeletedSegment, LocalLog
from braidlog.storage.log.log_loader import LogLoader, RecoveryProgress
from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.log.lost_tails import LostRange, RecoveryReport
from braidlog.storage.log.read import FetchDataInfo, LogReader, TimestampAndOffset
from braidlog.storage.log.segment_file_names import CLEANED_SUFFIX
from braidlog.wire.records.append_policy import AppendPolicy, ValidatedRecords
from braidlog.wire.records.batch import first_whole_batch
from braidlog.wire.records.validation import LATEST_PRODUCE_VERSION, ORIGIN_CLIENT, ORIGIN_REPLICATION

__all__ = [
    "AbortedTxn",
    "LogAppendInfo",
    "DeletedSegment",
    "UnifiedLog",
    "FetchDataInfo",
    "LostRange",
    "RecoveryProgress",
    "RecoveryReport",
    "TimestampAndOffset",
    "UnexpectedOffsetError",
]


class UnifiedLog:
    def __init__(self, log: LocalLog, recovery: RecoveryReport) -> None:
        self._local_log = log
        self._appender = LogAppender(log)
        self._reader = LogReader(log)
        self.topic_partition = log.topic_partition
        self.producer_state = log.producer_state
        self.leader_epochs = log.leader_epochs
        self.recovery = recovery
        # As it was found after a clean stop: closing it unchanged costs nothing, also for ten thousand idle logs.
        whole = recovery.clean and recovery.found_whole
        padded = any(segment.has_padded_index for segment in log.segments.items)
        self._settled = log.fingerprint() if whole and not padded else None

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
        jitter: random.Random | None = None,
    ) -> UnifiedLog:
        """Load, repair and recover; creates the directory if it is missing. `log.recovery` says what was done."""
        log = LocalLog(directory, topic_partition, settings, files, handles, clock, producer_expiration_ms, jitter)
        loader = LogLoader(
            log,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
            progress=progress,
        )
        with log.disk_faults():
            report = loader.load()
        log.high_watermark = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        log.producer_state.on_high_watermark(log.high_watermark)
        return UnifiedLog(log, report)

    # --- facts

    @property
    def directory(self) -> str:
        return self._local_log.directory

    @property
    def settings(self) -> LogSettings:
        return self._local_log.settings

    @property
    def log_start_offset(self) -> int:
        return self._local_log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._local_log.log_end_offset

    @property
    def next_offset(self) -> int:
        return self._local_log.next_offset

    @property
    def high_watermark(self) -> int:
        return self._local_log.high_watermark

    @property
    def recovery_point(self) -> int:
        return self._local_log.recovery_point

    @property
    def last_flush_ms(self) -> int:
        return self._local_log.last_flush_ms

    @property
    def unflushed_messages(self) -> int:
        """Offsets that a power cut would take."""
        return self._local_log.log_end_offset - self._local_log.recovery_point

    @property
    def segments(self) -> list[LogSegment]:
        """Oldest first, the active one last; a copy."""
        return self._local_log.segments.items[:]

    @property
    def truncation_count(self) -> int:
        """How often the log was truncated since it was opened: what was known of its content may be void after that."""
        return self._local_log.truncation_count

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._local_log.segments.items)

    @property
    def last_stable_offset(self) -> int:
        """No transaction that is open, or whose end is not below the high watermark, has a record before it."""
        log = self._local_log
        unstable = log.producer_state.first_unstable_offset()
        if 0 <= unstable < log.high_watermark:
            return max(unstable, log.log_start_offset)
        return log.high_watermark

    # --- append

    def append_as_leader(
        self,
        records: ByteSlice,
        leader_epoch: int,
        *,
        now_ms: int,
        origin: int = ORIGIN_CLIENT,
        produce_version: int = LATEST_PRODUCE_VERSION,
        validated: ValidatedRecords | None = None,
    ) -> LogAppendInfo:
        """Validate, give offsets, check the producer's sequence and stage; readable after `write_staged`.

        `validated` is what `validate_for_append` returned for these records, this time and the offset 0.
        """
        return self._appender.stage(records, leader_epoch, now_ms, origin, produce_version, validated)

    @property
    def append_policy(self) -> AppendPolicy:
        """What decides about appends, as the topic's settings are now."""
        return self._appender.policy

    def append_as_follower(self, records: ByteSlice, *, now_ms: int) -> LogAppendInfo | None:
        """Stage what the leader sent as it is, but for a last batch that is cut off; None where no batch is whole.

        UnexpectedOffsetError where it starts before the end of the log. Where the leader's log starts within the first
        batch, since records were deleted, an empty log gets all of that batch.
        """
        first = first_whole_batch(records.buffer, records.start, records.end)
        if first is None:
            return None
        log = self._local_log
        if first.base_offset < log.next_offset <= first.last_offset and log.next_offset == log.log_start_offset:
            self.truncate_fully_and_start_at(first.base_offset)
        return self._appender.stage(records, -1, now_ms, ORIGIN_REPLICATION, LATEST_PRODUCE_VERSION)

    @property
    def has_staged(self) -> bool:
        return self._appender.has_staged

    def write_staged(self) -> int:
        """Write all that is staged, so many bytes; on StorageFault every append since the last write is undone."""
        return self._appender.write()

    def sync_along(self, name: str) -> None:
        """The next sync of records syncs this file in the log's directory, too."""
        self._local_log.sync_along(name)

    def sync_is_due(self) -> bool:
        """Whether `flush.messages` asks for what was written to be synced before it is acknowledged."""
        return self.unflushed_messages >= self._local_log.settings.flush_messages

    # --- read

    def read(self, offset: int, max_bytes: int, limit_offset: int, min_one_batch: bool = True) -> FetchDataInfo:
        """Whole batches from the one that holds `offset` on, none of which reaches to `limit_offset`.

        As many as `max_bytes` hold; a first one that is larger is returned all the same if `min_one_batch`.
        Raises OffsetOutOfRangeError below the start and above the end of the log.
        """
        return self._reader.read(offset, max_bytes, limit_offset, min_one_batch)

    def offset_for_timestamp(self, timestamp: int, limit_offset: int | None = None) -> TimestampAndOffset | None:
        """The first record that is not older, if it lies below `limit_offset`."""
        found = self._reader.at_timestamp(timestamp)
        if found is not None and limit_offset is not None and found.offset >= limit_offset:
            return None
        return found

    def max_timestamp_offset(self) -> TimestampAndOffset | None:
        """The first record that carries the largest timestamp."""
        return self._reader.at_max_timestamp()

    def aborted_transactions(self, start: int, end: int) -> list[AbortedTxn]:
        """What a read_committed reader of the offsets `start` … `end` - 1 has to skip."""
        return self._reader.aborted(start, end)

    # --- offsets and epochs

    def advance_high_watermark(self, offset: int) -> bool:
        """Up to the log end at most; false where it stood there or further."""
        log = self._local_log
        offset = min(offset, log.log_end_offset)
        if offset <= log.high_watermark:
            return False
        log.high_watermark = offset
        log.producer_state.on_high_watermark(offset)
        return True

    def increment_log_start_offset(self, offset: int) -> bool:
        """Hide everything below; false where that was hidden. Raises OffsetOutOfRangeError past the high watermark."""
        log = self._local_log
        if offset > log.high_watermark:
            raise OffsetOutOfRangeError(
                f"cannot move the start of {log.topic_partition} to {offset}: its high watermark is "
                f"{log.high_watermark}"
            )
        return log.move_start(offset)

    def assign_leader_epoch(self, epoch: int, start_offset: int) -> None:
        """A new leader begins to write at `start_offset`."""
        if self._local_log.leader_epochs.assign(epoch, start_offset):
            with self._local_log.disk_faults():
                self.leader_epochs.save()

    def begin_leader_epoch(self, epoch: int) -> None:
        """This replica leads from the log end on; where the disk is full, the first write saves the epoch."""
        try:
            # What is staged belongs to the epoch before, and so before the start of this one.
            self._appender.write_early()
        except StorageFault as fault:
            if not is_disk_full(fault):
                raise
        try:
            self.assign_leader_epoch(epoch, self._local_log.log_end_offset)
        except StorageFault as fault:
            if not is_disk_full(fault):
                raise

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) as OffsetForLeaderEpoch answers (KIP-320); None for an epoch not known here."""
        return self._local_log.leader_epochs.end_offset_for(epoch, self._local_log.log_end_offset)

    def may_diverge(self, last_epoch: int, end: int) -> bool:
        """Whether a log that ends at `end` with a batch of `last_epoch` may hold what this one does not.

        No where it ends within the last epoch of this one, as that of a replica that keeps up does; else
        `end_offset_for_epoch` tells.
        """
        return last_epoch != self.leader_epochs.latest or end > self._local_log.log_end_offset

    # --- segments

    def roll(self) -> LogSegment:
        """Begin a new segment at the log end (the active one, if it is empty)."""
        self._appender.write_early()
        with self._local_log.disk_faults():
            return self._local_log.roll(self._local_log.log_end_offset)

    def delete_segments(self, count: int) -> list[DeletedSegment]:
        """Retire the `count` oldest segments below the high watermark, rolling first if those are all."""
        self._appender.write_early()
        with self._local_log.disk_faults():
            return self._local_log.delete_oldest_segments(count)

    def open_cleaned(self, base_offset: int) -> LogSegment:
        """A `.cleaned` segment that another process has filled."""
        with self._local_log.disk_faults():
            return self._local_log.open_segment(base_offset, CLEANED_SUFFIX)

    def replace_segments(self, new: list[LogSegment], old: list[LogSegment]) -> list[DeletedSegment]:
        """Swap `.cleaned` segments (settled and synced) in for `old`; a crash leaves either all old or all new."""
        with self._local_log.disk_faults():
            return self._local_log.replace_segments(new, old)

    @property
    def has_unfinished_swap(self) -> bool:
        return bool(self._local_log.swapped_in)

    def finish_swap(self) -> list[DeletedSegment]:
        """Go on with a swap that a full disk interrupted: until then the log is not to be compacted again."""
        with self._local_log.disk_faults():
            return self._local_log.finish_swap()

    def truncate_to(self, offset: int) -> bool:
        """Remove everything at or past `offset`, staged batches too; false where there was nothing."""
        self._appender.discard()
        with self._local_log.disk_faults():
            return self._local_log.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._appender.discard()
        with self._local_log.disk_faults():
            self._local_log.truncate_fully_and_start_at(offset)

    # --- durability, life cycle

    def sync_to(self, offset: int) -> None:
        """Make everything below `offset` survive a power cut and move the recovery point there. Any thread."""
        try:
            self._local_log.sync_to(offset)
        except OSError as problem:
            # Not even a full disk is harmless here, since the kernel may have dropped pages: no cause to be forgiven.
            fault = self._local_log.fault(problem)
            raise StorageFault(fault.directory, f"{fault.reason} while syncing") from problem

    def update_settings(self, settings: LogSettings) -> None:
        self._local_log.update_settings(settings)
        self._appender.policy = append_policy(settings)
        self.settle_leader_epochs()

    def settle_leader_epochs(self) -> None:
        """Forget the epochs where the topic has an old format; its settings are certain now."""
        self.leader_epochs.keep(self._appender.policy.magic == NEWEST_FORMAT)

    def rename_dir(self, name: str) -> None:
        """The directory gets this name beside its old one; open slices stay readable."""
        self._appender.write_early()
        with self._local_log.disk_faults():
            self._local_log.move_to(f"{self._local_log.data_directory}/{name}")

    def close(self, *, flush: bool = True) -> None:
        """Complete indexes, snapshot producer state, sync everything; with `flush` false just let go of files."""
        if flush:
            self._appender.write()
            if not self._is_settled():
                with self._local_log.disk_faults():
                    self._local_log.close_durably()
        else:
            self._appender.discard()
        for segment in self._local_log.segments.items:
            segment.release()

    def _is_settled(self) -> bool:
        """Whether what a clean stop has to leave is on disk: nothing changed since the last, or nothing is there."""
        log = self._local_log
        active = log.segments.active
        if self._settled is None or active.truncation_unsynced or active.reserved:
            return False
        return self._settled == log.fingerprint() or (log.log_end_offset == 0 and log.truncation_count == 0)
