"""One compaction pass: read the dirty part into the offset map, then copy what survives into `.cleaned` segments.

What survives of a batch, by the rules of KIP-534 and of exactly-once producers:

    data of an aborted transaction              nothing
    a record whose key has a newer offset       no
    a record without a key                      no
    a tombstone                                 until the batch's delete horizon, which the first pass sets
    a transaction marker                        until no data of its transaction is left, and then the horizon
    a record the map did not reach              yes, untouched
    an emptied batch                            its header, where it is the newest of a live producer or ends the pass

Offsets never change. Nothing but `.cleaned` files is written, so a pass may be killed at any byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from braidlog.core.errors import CorruptLogError
from braidlog.core.protocol_errors import ProtocolError
from braidlog.storage.cleaner.cleaned_segment import CleanedSegment, remove_cleaned
from braidlog.storage.cleaner.cleaned_transaction_metadata import CleanedTransactionMetadata
from braidlog.storage.cleaner.cleaning_request import CleanedGroup, CleaningRequest, CleaningResult, LogCleaningAborted
from braidlog.storage.cleaner.offset_map import OffsetMap
from braidlog.storage.cleaner.policy import SourceSegment, group_segments
from braidlog.storage.cleaner.source_segments import SegmentReader, measure_segment, read_aborted
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.wire.records.batch import BatchHeader, check_crc
from braidlog.wire.records.control_records import ABORT, COMMIT, control_type_of_key
from braidlog.wire.records.filtering import empty_batch, key_offsets, record_summaries, retain

_OPEN_FILES: Final = 16

Summary = tuple[bytes | None, int, int, bool]


class Cleaner:
    """State of one pass; `run` once."""

    def __init__(
        self,
        request: CleaningRequest,
        files: Files,
        *,
        throttle: Callable[[int], None],
        is_stopped: Callable[[], bool],
    ) -> None:
        self._request = request
        self._files = files
        self._handles = HandlePool(files, _OPEN_FILES)
        self._throttle = throttle
        self._is_stopped = is_stopped
        memory = request.memory
        most_keys = max(request.first_uncleanable - request.first_dirty, 0)
        self._map = OffsetMap(memory.dedupe_bytes, memory.load_factor, most_keys)
        # Below the dirty part each key is there once already; only newer records and horizons can remove it.
        self._map.cover(request.first_dirty - 1)
        self._map_was_full = False
        self._producers = {producer.producer_id: producer for producer in request.producers}
        self._bytes_before = 0
        self._bytes_after = 0
        self._records_before = 0
        self._records_after = 0
        self._records_without_key = 0
        # Tombstones of the old message formats have no horizon of their own: they go by the age of their segment.
        self._keep_old_tombstones = True
        self._group_changed = False
        self._kept_tombstone = False
        self._aborted = read_aborted(
            files, self._handles, request.directory, [base_offset for base_offset, _ in request.segments]
        )
        self._aborted += request.aborted_later
        self._tracker = CleanedTransactionMetadata(self._aborted)
        self._sources = [
            measure_segment(files, request.directory, base_offset, size) for base_offset, size in request.segments
        ]

    def run(self) -> CleaningResult:
        request = self._request
        self._fill_map()
        end_offset = request.first_uncleanable
        if self._map_was_full:
            end_offset = max(self._map.latest_offset + 1, request.first_dirty)
        sources = [segment for segment in self._sources if segment.base_offset < end_offset]
        old_horizon = self._old_tombstone_horizon()
        groups = [
            self._clean_group(group, old_horizon)
            for group in group_segments(
                sources, request.max_segment_bytes, request.max_index_bytes, request.first_uncleanable
            )
        ]
        return CleaningResult(
            tuple(group for group in groups if group is not None),
            end_offset,
            self._bytes_before,
            self._bytes_after,
            self._records_before,
            self._records_after,
            self._records_without_key,
            self._map.size,
            self._map_was_full,
        )

    def _fill_map(self) -> None:
        request = self._request
        tracker = CleanedTransactionMetadata(t for t in self._aborted if t.last_offset >= request.first_dirty)
        for position, segment in enumerate(self._sources):
            if position + 1 < len(self._sources) and self._sources[position + 1].base_offset <= request.first_dirty:
                continue
            reader = self._open(segment)
            try:
                while not self._map_was_full:
                    chunk = reader.next_chunk()
                    if chunk is None:
                        break
                    self._pace(reader.chunk_bytes)
                    self._map_chunk(reader.buffer, chunk, tracker)
            finally:
                reader.close()
            if self._map_was_full:
                return

    def _map_chunk(self, buffer: bytes, headers: list[BatchHeader], tracker: CleanedTransactionMetadata) -> None:
        first_dirty = self._request.first_dirty
        offsets = self._map
        for header in headers:
            last_offset = header.last_offset
            if last_offset < first_dirty:
                continue
            if header.is_control:
                self._marker_is_superfluous(tracker, header, self._summaries(buffer, header))
            elif not tracker.data_is_aborted(header.producer_id, header.is_transactional, last_offset):
                for key, offset in self._keys(buffer, header):
                    if key is not None and offset >= first_dirty and not offsets.put(key, offset):
                        # The batch is not wholly known: the pass ends before the first record that had no room.
                        self._map_was_full = True
                        return
            offsets.cover(last_offset)

    def _clean_group(self, group: list[SourceSegment], old_horizon: int) -> CleanedGroup | None:
        """None where a segment would only be replaced by its likeness."""
        request = self._request
        target = CleanedSegment(
            self._files,
            self._handles,
            request.directory,
            group[0].base_offset,
            request.index_interval_bytes,
            request.max_index_bytes,
        )
        self._group_changed = len(group) > 1
        try:
            for segment in group:
                self._keep_old_tombstones = segment.last_modified_ms > old_horizon
                self._clean_segment(segment, target)
            if self._group_changed:
                target.finish(group[-1].last_modified_ms)
            else:
                target.discard()
        except BaseException:
            target.discard()
            raise
        self._bytes_after += target.size
        if not self._group_changed:
            return None
        return CleanedGroup(target.base_offset, tuple(segment.base_offset for segment in group), target.size)

    def _clean_segment(self, segment: SourceSegment, target: CleanedSegment) -> None:
        reader = self._open(segment)
        try:
            while True:
                chunk = reader.next_chunk()
                if chunk is None:
                    return
                written = target.size
                for header in chunk:
                    self._clean_batch(reader.buffer, header, target)
                self._bytes_before += reader.chunk_bytes
                self._pace(reader.chunk_bytes + target.size - written)
        finally:
            reader.close()

    def _clean_batch(self, buffer: bytes, header: BatchHeader, target: CleanedSegment) -> None:
        try:
            check_crc(buffer, header)
        except ProtocolError as problem:
            raise CorruptLogError(
                f"{self._request.directory}: batch at offset {header.base_offset}: {problem.message}"
            ) from None
        superfluous = False
        summaries: list[Summary] = []
        if header.is_control:
            summaries = self._summaries(buffer, header)
            superfluous = self._marker_is_superfluous(self._tracker, header, summaries)
            for transaction in self._tracker.take_kept():
                target.append_aborted(transaction)
            horizon = header.delete_horizon_ms
            discard = superfluous and (not summaries or 0 <= horizon <= self._request.now_ms)
            keep = [not discard] * len(summaries)
        else:
            discard = self._tracker.data_is_aborted(header.producer_id, header.is_transactional, header.last_offset)
            if not discard:
                summaries = self._summaries(buffer, header)
                keep = self._records_to_keep(header, summaries)
            else:
                keep = []
        self._records_before += max(header.count, len(summaries))
        batch = self._rebuilt(buffer, header, keep, superfluous)
        if batch is not None:
            self._records_after += sum(keep)
            target.append(batch, header.last_offset, header.max_timestamp)

    def _rebuilt(self, buffer: bytes, header: BatchHeader, keep: list[bool], superfluous_marker: bool) -> bytes | None:
        """The bytes that stand for the batch from now on; none if it goes."""
        original = buffer[header.position : header.position + header.size]
        batch: bytes | None = None
        if any(keep):
            horizon: int | None = None
            wants_horizon = superfluous_marker or (self._kept_tombstone and not header.is_control)
            if wants_horizon and header.magic >= 2 and not header.has_delete_horizon:
                horizon = self._request.now_ms + self._request.delete_retention_ms
            if horizon is None and all(keep):
                return original
            batch = retain(buffer, header, keep, delete_horizon_ms=horizon)
        elif header.magic >= 2 and self._keeps_empty(header):
            batch = empty_batch(header)
        if batch != original:
            self._group_changed = True
        return batch

    def _records_to_keep(self, header: BatchHeader, summaries: list[Summary]) -> list[bool]:
        offsets = self._map
        now_ms = self._request.now_ms
        if header.magic >= 2:
            keep_tombstones = not header.has_delete_horizon or now_ms < header.delete_horizon_ms
        else:
            keep_tombstones = self._keep_old_tombstones
        self._kept_tombstone = False
        keep: list[bool] = []
        for key, offset, _, has_value in summaries:
            if offset > offsets.latest_offset:
                kept = True
            elif key is None:
                self._records_without_key += 1
                kept = False
            else:
                kept = (has_value or keep_tombstones) and offset >= offsets.get(key)
            if kept and not has_value:
                self._kept_tombstone = True
            keep.append(kept)
        return keep

    def _keeps_empty(self, header: BatchHeader) -> bool:
        if header.next_offset == self._map.latest_offset + 1:
            return True
        producer = self._producers.get(header.producer_id) if header.has_producer_id else None
        if producer is None:
            return False
        if producer.last_data_offset is not None:
            return header.last_offset == producer.last_data_offset
        return header.is_control and header.producer_epoch == producer.epoch

    def _marker_is_superfluous(
        self, tracker: CleanedTransactionMetadata, header: BatchHeader, summaries: list[Summary]
    ) -> bool:
        if not summaries:
            return tracker.marker_is_superfluous(header.producer_id, None, header.last_offset)
        kind = control_type_of_key(summaries[0][0])
        if kind != ABORT and kind != COMMIT:
            return False
        return tracker.marker_is_superfluous(header.producer_id, kind == COMMIT, header.last_offset)

    def _keys(self, buffer: bytes, header: BatchHeader) -> list[tuple[bytes | None, int]]:
        try:
            return key_offsets(buffer, header)
        except ProtocolError as problem:
            raise CorruptLogError(
                f"{self._request.directory}: batch at offset {header.base_offset}: {problem.message}"
            ) from None

    def _summaries(self, buffer: bytes, header: BatchHeader) -> list[Summary]:
        try:
            return record_summaries(buffer, header)
        except ProtocolError as problem:
            raise CorruptLogError(
                f"{self._request.directory}: batch at offset {header.base_offset}: {problem.message}"
            ) from None

    def _old_tombstone_horizon(self) -> int:
        """Old-format tombstones in segments not written since then go (as before KIP-534)."""
        request = self._request
        clean = [s for s in self._sources if s.base_offset < request.first_dirty]
        return clean[-1].last_modified_ms - request.delete_retention_ms if clean else 0

    def _open(self, segment: SourceSegment) -> SegmentReader:
        return SegmentReader(
            self._files,
            self._request.directory,
            segment.base_offset,
            segment.size,
            self._request.memory.io_buffer_bytes,
        )

    def _pace(self, moved_bytes: int) -> None:
        if self._is_stopped():
            raise LogCleaningAborted(f"cleaning of {self._request.directory} was stopped")
        self._throttle(moved_bytes)


def clean(
    request: CleaningRequest,
    files: Files,
    *,
    throttle: Callable[[int], None] | None = None,
    is_stopped: Callable[[], bool] | None = None,
) -> CleaningResult:
    """Run a pass here; raises LogCleaningAborted, CorruptLogError (this log cannot be cleaned) or OSError."""
    try:
        return Cleaner(request, files, throttle=throttle or _no_throttle, is_stopped=is_stopped or _never).run()
    except BaseException:
        for base_offset, _ in request.segments:
            remove_cleaned(files, request.directory, base_offset)
        raise


def _no_throttle(moved_bytes: int) -> None:
    return None


def _never() -> bool:
    return False
