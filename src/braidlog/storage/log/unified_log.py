"""One partition replica: what may be appended to it, read from it and removed.

    log start offset <= last stable offset <= high watermark <= log end offset <= next offset

The log end offset is the end of what is written and may be read; the next offset also counts what is staged.
All calls come from the thread that owns the log, except `sync_to`, which may run in an executor. A `StorageFault` out
of any call means that nothing staged since the last successful write is in the log.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import TypeVar

from braidlog.config.log_settings import LogSettings
from braidlog.core.clock import Clock
from braidlog.core.errors import StorageFault, is_disk_full
from braidlog.core.protocol_errors import OffsetOutOfRangeError
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.transaction_index import AbortedTxn
from braidlog.storage.log import segment_lifecycle
from braidlog.storage.log.append import LogAppender, LogAppendInfo, UnexpectedOffsetError
from braidlog.storage.log.flush import close_durably, sync_to
from braidlog.storage.log.local_log import LocalLog
from braidlog.storage.log.log_loader import LogLoader, RecoveryProgress
from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.log.lost_tails import LostRange, RecoveryReport
from braidlog.storage.log.read import FetchDataInfo, LogReader, TimestampAndOffset
from braidlog.storage.log.segment_file_names import CLEANED_SUFFIX
from braidlog.storage.log.segment_lifecycle import DeletedSegment
from braidlog.storage.producers.producer_state_manager import ProducerStateEntry
from braidlog.storage.producers.verification import VerificationGuard
from braidlog.wire.records.append_policy import AppendPolicy, ValidatedRecords
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


T = TypeVar("T")


class UnifiedLog:
    def __init__(self, state: LocalLog, recovery: RecoveryReport) -> None:
        self._state = state
        self._appender = LogAppender(state)
        self._reader = LogReader(state)
        self.recovery = recovery
        # As it was found after a clean stop: closing it unchanged costs nothing, also for ten thousand idle logs.
        whole = recovery.clean and recovery.found_whole
        padded = any(segment.has_padded_index for segment in state.segments.items)
        self._settled = state.fingerprint() if whole and not padded else None
        # The thread that owns the log may read the rest of `_state` through the properties below only.
        self.topic_partition = state.topic_partition

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
        state = LocalLog(directory, topic_partition, settings, files, handles, clock, producer_expiration_ms, jitter)
        recovery = LogLoader(
            state,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean=clean,
            progress=progress,
        )
        try:
            report = recovery.load()
        except OSError as problem:
            raise state.fault(problem) from problem
        state.high_watermark = min(max(high_watermark, state.log_start_offset), state.log_end_offset)
        state.producers.on_high_watermark(state.high_watermark)
        return UnifiedLog(state, report)

    # --- facts

    @property
    def directory(self) -> str:
        return self._state.directory

    @property
    def settings(self) -> LogSettings:
        return self._state.settings

    @property
    def log_start_offset(self) -> int:
        return self._state.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._state.log_end_offset

    @property
    def next_offset(self) -> int:
        return self._state.next_offset

    @property
    def high_watermark(self) -> int:
        return self._state.high_watermark

    @property
    def recovery_point(self) -> int:
        return self._state.recovery_point

    @property
    def last_flush_ms(self) -> int:
        return self._state.last_flush_ms

    @property
    def unflushed_messages(self) -> int:
        """Offsets that a power cut would take."""
        return self._state.log_end_offset - self._state.recovery_point

    @property
    def segments(self) -> list[LogSegment]:
        """Oldest first, the active one last; a copy."""
        return self._state.segments.items[:]

    @property
    def truncations(self) -> int:
        """How often the log was cut since it was opened; whoever remembers something of its content compares."""
        return self._state.truncations

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._state.segments.items)

    @property
    def producers(self) -> list[ProducerStateEntry]:
        """What is known of each producer, for DescribeProducers."""
        return list(self._state.producers.producers.values())

    @property
    def last_stable_offset(self) -> int:
        """No transaction that is open, or whose end is not below the high watermark, has a record before it."""
        state = self._state
        unstable = state.producers.first_unstable_offset()
        if 0 <= unstable < state.high_watermark:
            return max(unstable, state.log_start_offset)
        return state.high_watermark

    @property
    def first_unstable_offset(self) -> int:
        """Where the earliest transaction begins that holds read_committed readers back; -1 for none."""
        return self._state.producers.first_unstable_offset()

    def has_late_transaction(self, now_ms: int, longest_ms: int) -> bool:
        """Whether the earliest open transaction had no batch for so long that it must be hanging."""
        last_ms = self._state.producers.oldest_transaction_ms()
        return last_ms >= 0 and now_ms - last_ms > longest_ms

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
        return self._state.policy

    def append_as_follower(self, records: ByteSlice, *, now_ms: int) -> LogAppendInfo:
        """Stage what the leader sent as it is; UnexpectedOffsetError where it starts before the end of the log."""
        return self._appender.stage(records, -1, now_ms, ORIGIN_REPLICATION, LATEST_PRODUCE_VERSION)

    def begin_verification(self, producer_id: int, epoch: int, sequence: int, now_ms: int) -> VerificationGuard | None:
        """Before a transactional batch (KIP-890): what to hold while the coordinator is asked, None to go ahead."""
        return self._state.producers.begin_verification(producer_id, epoch, sequence, now_ms)

    def may_write(self, producer_id: int, epoch: int, verification: VerificationGuard | None) -> bool:
        """Whether no marker and no other transaction came in between."""
        return self._state.producers.may_write(producer_id, epoch, verification)

    @property
    def has_staged(self) -> bool:
        return self._appender.has_staged

    def write_staged(self) -> int:
        """Write all that is staged, so many bytes; on StorageFault every append since the last write is undone."""
        return self._appender.write()

    def sync_is_due(self) -> bool:
        """Whether `flush.messages` asks for what was written to be synced before it is acknowledged."""
        return self.unflushed_messages >= self._state.settings.flush_messages

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
        state = self._state
        offset = min(offset, state.log_end_offset)
        if offset <= state.high_watermark:
            return False
        state.high_watermark = offset
        state.producers.on_high_watermark(offset)
        return True

    def increment_log_start_offset(self, offset: int) -> bool:
        """Hide everything below; false where that was hidden. Raises OffsetOutOfRangeError past the high watermark."""
        state = self._state
        if offset > state.high_watermark:
            raise OffsetOutOfRangeError(
                f"cannot move the start of {state.topic_partition} to {offset}: its high watermark is "
                f"{state.high_watermark}"
            )
        return self._guard(lambda: segment_lifecycle.move_start(state, offset))

    def assign_leader_epoch(self, epoch: int, start_offset: int) -> None:
        """A new leader begins to write at `start_offset`."""
        if self._state.epochs.assign(epoch, start_offset):
            self._guard(self._state.epochs.save)

    def begin_leader_epoch(self, epoch: int) -> None:
        """This replica leads from the log end on; where the disk is full, the first write saves the epoch."""
        try:
            self.assign_leader_epoch(epoch, self._state.log_end_offset)
        except StorageFault as fault:
            if not is_disk_full(fault):
                raise

    @property
    def latest_epoch(self) -> int:
        return self._state.epochs.latest

    def epoch_for_offset(self, offset: int) -> int:
        return self._state.epochs.epoch_for_offset(offset)

    @property
    def leader_epochs(self) -> list[tuple[int, int]]:
        """(epoch, start offset), ascending."""
        return self._state.epochs.entries

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int] | None:
        """(epoch, end offset) as OffsetForLeaderEpoch answers (KIP-320); None for an epoch not known here."""
        return self._state.epochs.end_offset_for(epoch, self._state.log_end_offset)

    def last_records_of_active_producers(self) -> list[tuple[int, int | None, int]]:
        """(producer id, last offset of its data or None, epoch): what compaction must not lose sight of."""
        return [
            (entry.producer_id, entry.last_offset if entry.batches else None, entry.epoch)
            for entry in self._state.producers.producers.values()
        ]

    def remove_expired_producers(self, now_ms: int) -> int:
        return self._state.producers.remove_expired(now_ms)

    # --- segments

    def roll(self) -> LogSegment:
        """Begin a new segment at the log end (the active one, if it is empty)."""
        self._appender.write_early()
        return self._guard(lambda: segment_lifecycle.roll(self._state, self._state.log_end_offset))

    def delete_segments(self, count: int) -> list[DeletedSegment]:
        """Retire the `count` oldest segments below the high watermark, rolling first if those are all."""
        self._appender.write_early()
        return self._guard(lambda: segment_lifecycle.delete_oldest(self._state, count))

    def create_cleaned(self, base_offset: int) -> LogSegment:
        """An empty segment of `.cleaned` files, for the cleaner to fill."""
        return self._guard(lambda: self._state.new_segment(base_offset, CLEANED_SUFFIX))

    def open_cleaned(self, base_offset: int) -> LogSegment:
        """A `.cleaned` segment that another process has filled."""
        return self._guard(lambda: self._state.open_segment(base_offset, CLEANED_SUFFIX))

    def replace_segments(self, new: list[LogSegment], old: list[LogSegment]) -> list[DeletedSegment]:
        """Swap `.cleaned` segments (settled and synced) in for `old`; a crash leaves either all old or all new."""
        return self._guard(lambda: segment_lifecycle.swap(self._state, new, old))

    @property
    def has_unfinished_swap(self) -> bool:
        return bool(self._state.swapped_in)

    def finish_swap(self) -> list[DeletedSegment]:
        """Go on with a swap that a full disk interrupted: until then the log is not to be compacted again."""
        return self._guard(lambda: segment_lifecycle.finish_swap(self._state))

    def truncate_to(self, offset: int) -> bool:
        """Remove everything at or past `offset`, staged batches too; false where there was nothing."""
        self._appender.discard()
        return self._guard(lambda: segment_lifecycle.truncate_to(self._state, offset))

    def truncate_fully_and_start_at(self, offset: int) -> None:
        self._appender.discard()
        self._guard(lambda: segment_lifecycle.truncate_fully(self._state, offset))

    # --- durability, life cycle

    def sync_to(self, offset: int) -> None:
        """Make everything below `offset` survive a power cut and move the recovery point there. Any thread."""
        try:
            sync_to(self._state, offset)
        except OSError as problem:
            # Not even a full disk is harmless here: nobody knows what the kernel dropped. So no cause to be forgiven.
            fault = self._state.fault(problem)
            raise StorageFault(fault.directory, f"{fault.reason} while syncing") from problem

    def update_settings(self, settings: LogSettings) -> None:
        self._state.apply(settings)

    def update_producer_expiration(self, expiration_ms: int) -> None:
        self._state.producers.expiration_ms = expiration_ms

    def rename_dir(self, name: str) -> None:
        """The directory gets this name beside its old one; open slices stay readable."""
        state = self._state
        parent = os.path.dirname(state.directory)
        self._appender.write_early()
        self._guard(lambda: state.move_to(f"{parent}/{name}"))

    def close(self, *, flush: bool = True) -> None:
        """Complete indexes, snapshot producer state, sync everything; with `flush` false just let go of files."""
        if flush:
            self._appender.write()
            if not self._is_settled():
                self._guard(lambda: close_durably(self._state))
        else:
            self._appender.discard()
        for segment in self._state.segments.items:
            segment.release()

    def _is_settled(self) -> bool:
        """Whether what a clean stop has to leave is on disk: nothing changed since the last, or nothing is there."""
        state = self._state
        active = state.segments.active
        if self._settled is None or active.truncation_unsynced or active.reserved:
            return False
        return self._settled == state.fingerprint() or (state.log_end_offset == 0 and state.truncations == 0)

    def _guard(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except OSError as problem:
            raise self._state.fault(problem) from problem
