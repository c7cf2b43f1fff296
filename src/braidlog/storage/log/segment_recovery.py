"""Segments read again after a crash: batches checked, indexes and producer state rebuilt (hot: compiled by mypyc)."""

from __future__ import annotations

from typing import Final

from braidlog.core.protocol_errors import CorruptMessageError
from braidlog.storage.index.offset_index import MAX_RELATIVE_OFFSET
from braidlog.storage.index.transaction_index import AbortedTxn
from braidlog.storage.log.leader_epoch_file_cache import LeaderEpochFileCache
from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.producers.producer_state_manager import ProducerStateManager
from braidlog.wire.records.batch import MESSAGE_V0_SIZE, BatchHeader, check_crc, read_header
from braidlog.wire.records.control_records import EndTxnMarker, read_end_txn_marker
from braidlog.wire.records.validation import ORIGIN_REPLICATION

_WINDOW: Final = 1 << 20
_HEADER_ROOM: Final = 128


class SegmentRecoveryResult:
    """How far the segment is sound; `reason` is None where it is to its end."""

    __slots__ = ("next_offset", "reason", "torn", "valid_bytes")

    def __init__(self, valid_bytes: int, next_offset: int, reason: str | None, torn: bool) -> None:
        self.valid_bytes = valid_bytes
        self.next_offset = next_offset
        self.reason = reason
        # What follows is zeros or less than a header: no batch that was acknowledged.
        self.torn = torn


def recover_segment(
    segment: LogSegment, producers: ProducerStateManager | None, epochs: LeaderEpochFileCache | None
) -> SegmentRecoveryResult:
    """Check every batch and rebuild offset and time index; with `producers` also their state and the txn index."""
    segment.begin_rebuild()
    aborted: list[AbortedTxn] = []
    result = _scan(segment, producers, epochs, aborted)
    if producers is not None:
        segment.txn_index.replace(aborted)
    return result


def _scan(
    segment: LogSegment,
    producers: ProducerStateManager | None,
    epochs: LeaderEpochFileCache | None,
    aborted: list[AbortedTxn],
) -> SegmentRecoveryResult:
    size = segment.size
    position = 0
    next_offset = segment.base_offset
    window = b""
    window_at = 0
    while position < size:
        inside = position - window_at
        if inside + _HEADER_ROOM > len(window) and window_at + len(window) < size:
            window, window_at, inside = segment.read_at(min(_WINDOW, size - position), position), position, 0
        if size - position < MESSAGE_V0_SIZE:
            return SegmentRecoveryResult(position, next_offset, "the last batch is cut short in its header", True)
        try:
            header = read_header(window, inside, len(window))
            if position + header.size > size:
                reason = f"the batch of offset {header.base_offset} has {size - position} of its {header.size} bytes"
                return SegmentRecoveryResult(position, next_offset, reason, False)
            if inside + header.size > len(window):
                window = segment.read_at(max(_WINDOW, header.size), position)
                window_at = position
                header.position = 0
            check_crc(window, header)
        except CorruptMessageError as problem:
            torn = not any(segment.read_at(min(_WINDOW, size - position), position))
            return SegmentRecoveryResult(position, next_offset, problem.message, torn)
        if header.base_offset < next_offset or header.last_offset - segment.base_offset > MAX_RELATIVE_OFFSET:
            reason = f"a batch of offsets {header.base_offset} … {header.last_offset} where {next_offset} is due"
            return SegmentRecoveryResult(position, next_offset, reason, False)
        if producers is not None:
            _replay(producers, header, window, aborted)
        if epochs is not None and header.leader_epoch > epochs.latest:
            epochs.assign(header.leader_epoch, header.base_offset)
        elif epochs is not None and header.magic < 2:
            epochs.clear()
        segment.index_batch(position, header.size, header.last_offset, header.max_timestamp, header.last_offset)
        position += header.size
        next_offset = header.last_offset + 1
    return SegmentRecoveryResult(position, next_offset, None, False)


def _replay(producers: ProducerStateManager, header: BatchHeader, window: bytes, aborted: list[AbortedTxn]) -> None:
    if header.producer_id >= 0:
        marker = read_end_txn_marker(window, header) if header.is_control else None
        aborted_txn = _replay_batch(producers, header, marker)
        if aborted_txn is not None:
            aborted.append(aborted_txn)
    producers.end_offset = header.last_offset + 1


def _replay_batch(
    producers: ProducerStateManager, header: BatchHeader, marker: EndTxnMarker | None
) -> AbortedTxn | None:
    """Account for one batch; the transaction that it aborts, if it does."""
    completed = producers.append(header, marker, ORIGIN_REPLICATION)
    aborted = producers.complete(completed) if completed is not None else None
    producers.on_staged_written()
    return aborted


def replay_producers(producers: ProducerStateManager, segments: list[LogSegment], end_offset: int) -> None:
    """Bring `producers` from its own end offset to `end_offset`; index entries of transactions exist already."""
    for number, segment in enumerate(segments):
        upper = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if upper <= producers.end_offset or segment.base_offset >= end_offset:
            continue
        start = segment.position_of(max(producers.end_offset, segment.base_offset))
        walk = segment.walk(start)
        while walk.advance():
            if walk.last_offset >= end_offset:
                break
            header = walk.header()
            if header.producer_id >= 0:
                marker = _marker_at(walk.read(), header) if header.is_control else None
                _replay_batch(producers, header, marker)
    producers.end_offset = max(producers.end_offset, end_offset)


def _marker_at(batch: bytes, header: BatchHeader) -> EndTxnMarker | None:
    """The marker of a control batch whose bytes were read on their own."""
    position = header.position
    header.position = 0
    marker = read_end_txn_marker(batch, header)
    header.position = position
    return marker
