"""How batches enter a log: validated, accounted for and staged, then written together (hot: compiled by mypyc).

A staged batch has its offsets and counts for the producer's next sequence, but cannot be read. `write` hands all
that is staged to the disk in one gathered write and only then moves the log end offset. When that fails everything
staged since the last write is undone, as if it had never been asked for.
"""

from __future__ import annotations

import contextlib
from typing import Final

from mypy_extensions import mypyc_attr

from braidlog.config.log_settings import PRODUCER_CODEC, LogSettings
from braidlog.config.message_format import stored_format
from braidlog.core.errors import BraidlogError, StorageFault
from braidlog.core.protocol_errors import RecordListTooLargeError
from braidlog.core.slices import ByteSlice
from braidlog.storage.crash_points import AFTER_WRITE, crash_point
from braidlog.storage.files import Part
from braidlog.storage.index.transaction_index import AbortedTxn
from braidlog.storage.log.local_log import LocalLog
from braidlog.storage.producers.producer_state_manager import BatchMetadata
from braidlog.wire.records.append_policy import AppendPolicy, ValidatedRecords
from braidlog.wire.records.batch import NO_TIMESTAMP, BatchHeader, read_header
from braidlog.wire.records.compression import codec_named
from braidlog.wire.records.control_records import EndTxnMarker, read_end_txn_marker
from braidlog.wire.records.validation import (
    ORIGIN_CLIENT,
    ORIGIN_REPLICATION,
    assign_offsets,
    validate_for_append,
)

# What a compressed batch may unfold to: far more than clients put into one, far less than a bomb is made for.
_DECOMPRESSED_AT_LEAST: Final = 32 << 20
_DECOMPRESSED_TIMES: Final = 16


class UnexpectedOffsetError(BraidlogError):
    """A follower was handed batches that do not start at or past the end of its log."""


@mypyc_attr(acyclic=True)
class LogAppendInfo:
    """The result of one append; readable only after `write_staged`."""

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

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        count: int,
        size: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        log_append_time: int,
        log_start_offset: int,
        leader_epoch: int,
        duplicate: bool,
        rolled: bool,
        source_codec: int,
        converted: bool,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.count = count
        self.size = size
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        # -1 unless the topic stamps records itself (message.timestamp.type=LogAppendTime).
        self.log_append_time = log_append_time
        self.log_start_offset = log_start_offset
        self.leader_epoch = leader_epoch
        # The batch was there already: the offsets are the earlier ones and nothing was staged.
        self.duplicate = duplicate
        # This append began a new segment: what lies before `first_offset` wants `sync_to(first_offset)`.
        self.rolled = rolled
        self.source_codec = source_codec
        self.converted = converted


class LogAppender:
    def __init__(self, log: LocalLog) -> None:
        self._local_log = log
        self.policy = append_policy(log.settings)
        self._parts: list[Part] = []
        self._size = 0
        # Of the staged batches, with the position that each will have in the segment.
        self._headers: list[BatchHeader] = []
        self._aborted: list[AbortedTxn] = []
        # The leader epochs before anything was staged; None while staging has not changed them.
        self._epochs_before: list[tuple[int, int]] | None = None
        # Of writes between two calls of `write` (a roll): how much, and the failure that undid staged batches.
        self._written_early = 0
        self._undone_by: StorageFault | None = None

    @property
    def has_staged(self) -> bool:
        return self._size > 0

    def stage(
        self,
        records: ByteSlice,
        leader_epoch: int,
        now_ms: int,
        origin: int,
        produce_version: int,
        validated: ValidatedRecords | None = None,
    ) -> LogAppendInfo:
        """`validated` where that was done before, as if for an empty log."""
        log = self._local_log
        if origin == ORIGIN_REPLICATION:
            first_offset = read_header(records.buffer, records.start, records.end).base_offset
            if first_offset < log.next_offset:
                raise UnexpectedOffsetError(
                    f"{log.topic_partition}: a batch of offset {first_offset} where {log.next_offset} or more "
                    f"was expected"
                )
        if validated is None:
            validated = validate_for_append(
                records,
                first_offset=log.next_offset,
                leader_epoch=leader_epoch,
                now_ms=now_ms,
                policy=self.policy,
                origin=origin,
                produce_version=produce_version,
            )
        else:
            assign_offsets(validated, log.next_offset, leader_epoch)
        rolled = self._roll_if_due(validated, now_ms, origin)
        duplicate = self._account(validated, origin)
        if duplicate is not None:
            return LogAppendInfo(
                duplicate.first_offset,
                duplicate.last_offset,
                validated.count,
                0,
                duplicate.timestamp,
                duplicate.last_offset,
                duplicate.timestamp,
                log.log_start_offset,
                leader_epoch,
                True,
                rolled,
                validated.source_codec,
                False,
            )
        self._take(validated)
        return LogAppendInfo(
            validated.first_offset,
            validated.last_offset,
            validated.count,
            validated.size,
            validated.max_timestamp,
            validated.offset_of_max_timestamp,
            now_ms if self.policy.log_append_time and origin != ORIGIN_REPLICATION else NO_TIMESTAMP,
            log.log_start_offset,
            leader_epoch,
            False,
            rolled,
            validated.source_codec,
            validated.converted,
        )

    def _roll_if_due(self, validated: ValidatedRecords, now_ms: int, origin: int) -> bool:
        log = self._local_log
        # A copy takes what its original has, also from before the setting was lowered.
        if validated.size > log.settings.segment_bytes and origin != ORIGIN_REPLICATION:
            raise RecordListTooLargeError(
                f"{validated.size} bytes appended at once exceed segment.bytes={log.settings.segment_bytes} of "
                f"{log.topic_partition}"
            )
        try:
            size = self._size + validated.size
            if not log.is_roll_due(size, validated.last_offset, validated.max_timestamp, now_ms):
                return False
            self.write_early()
            log.roll(max(validated.first_offset, log.log_end_offset))
        except OSError as problem:
            fault = log.fault(problem)
            if self._size > 0:
                self._undone_by = fault
                self.discard()
            raise fault from problem
        return True

    def _account(self, validated: ValidatedRecords, origin: int) -> BatchMetadata | None:
        """Producer state and leader epochs; a batch that was there before is returned and changes nothing."""
        log = self._local_log
        producers = log.producer_state
        mark = producers.mark()
        aborted = len(self._aborted)
        for header in validated.headers:
            if header.producer_id < 0:
                continue
            if origin == ORIGIN_CLIENT:
                duplicate = producers.find_duplicate(header)
                if duplicate is not None:
                    return duplicate
            try:
                marker = _marker_of(validated, header) if header.is_control else None
                completed = producers.append(header, marker, origin)
            except Exception:
                producers.roll_back(mark)
                del self._aborted[aborted:]
                raise
            if completed is not None:
                aborted_txn = producers.complete(completed)
                if aborted_txn is not None:
                    self._aborted.append(aborted_txn)
        for header in validated.headers:
            if header.leader_epoch != log.leader_epochs.latest:
                if self._epochs_before is None:
                    self._epochs_before = log.leader_epochs.entries
                if header.leader_epoch >= 0:
                    log.leader_epochs.assign(header.leader_epoch, header.base_offset)
                elif header.magic < 2:
                    # Which epoch wrote these no replica can tell from its log.
                    log.leader_epochs.clear()
        return None

    def _take(self, validated: ValidatedRecords) -> None:
        log = self._local_log
        position = log.segments.active.size + self._size
        for header in validated.headers:
            header.position += position
        self._headers += validated.headers
        self._parts += validated.parts
        self._size += validated.size
        log.next_offset = validated.last_offset + 1

    def write(self) -> int:
        """Write all that is staged, undone where that fails; returns the bytes written since the last call.

        StorageFault also where an early write failed since then: what was staged before it is gone, and its
        producers learn of it only here.
        """
        undone_by = self._undone_by
        if undone_by is not None:
            self._undone_by = None
            self._written_early = 0
            self.discard()
            raise undone_by
        written = self._written_early
        self._written_early = 0
        return written + self._write_staged()

    def write_early(self) -> None:
        """Write what is staged before its turn; the next `write` accounts for it."""
        try:
            self._written_early += self._write_staged()
        except StorageFault as fault:
            self._undone_by = fault
            raise

    def _write_staged(self) -> int:
        """One gathered write, so many bytes; on failure everything staged is undone and StorageFault raised."""
        size = self._size
        if size == 0:
            return 0
        log = self._local_log
        segment = log.segments.active
        size_before = segment.size
        try:
            # An epoch without data is harmless, data without its epoch is not.
            if log.leader_epochs.changed:
                log.leader_epochs.save()
            segment.write(self._parts, size)
            if self._aborted:
                self._write_aborted()
        except OSError as problem:
            self._undo(size_before)
            raise log.fault(problem) from problem
        except Exception:
            # Not the disk's fault, a lack of memory perhaps; the append is refused all the same.
            self._undo(size_before)
            raise
        crash_point(AFTER_WRITE)
        for header in self._headers:
            last_offset = header.last_offset
            segment.index_batch(header.position, header.size, last_offset, header.max_timestamp, last_offset)
        next_offset = log.next_offset
        segment.remember_end_position(next_offset)
        log.log_end_offset = next_offset
        log.producer_state.end_offset = next_offset
        log.producer_state.on_staged_written()
        self._forget()
        return size

    def _write_aborted(self) -> None:
        index = self._local_log.segments.active.txn_index
        before = len(index.entries())
        try:
            for txn in self._aborted:
                index.append(txn)
        except OSError:
            index.keep(before)
            raise
        self._local_log.directory_changed = True

    def _undo(self, size_before: int) -> None:
        log = self._local_log
        segment = log.segments.active
        if segment.size != size_before:
            # Where it fails it has noted that, and the next write cuts first.
            with contextlib.suppress(OSError):
                segment.undo_write(size_before)
        self.discard()

    def discard(self) -> None:
        """Undo what is staged."""
        log = self._local_log
        log.producer_state.roll_back()
        if self._epochs_before is not None:
            log.leader_epochs.restore(self._epochs_before)
        log.next_offset = log.log_end_offset
        self._forget()

    def _forget(self) -> None:
        self._parts = []
        self._headers = []
        self._aborted = []
        self._size = 0
        self._epochs_before = None


def _marker_of(validated: ValidatedRecords, header: BatchHeader) -> EndTxnMarker | None:
    # Control batches are a hundred bytes or so, and few.
    return read_end_txn_marker(b"".join(validated.parts), header)


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
        magic=stored_format(settings.message_format_version),
    )
