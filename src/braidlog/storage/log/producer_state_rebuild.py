"""Producer state from the batches of a log, by their headers (hot: compiled by mypyc)."""

from __future__ import annotations

from braidlog.storage.log.log_segment import LogSegment
from braidlog.storage.producers.end_txn_marker import read_end_txn_marker
from braidlog.storage.producers.producer_state_manager import CompletedTxn, EndTxnMarker, ProducerStateManager
from braidlog.wire.records.batch import BatchHeader
from braidlog.wire.records.validation import ORIGIN_REPLICATION


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
                marker: EndTxnMarker | None = None
                if header.is_control:
                    marker = marker_at(walk.read(), header)
                completed = replay_batch(producers, header, marker)
                if completed is not None:
                    producers.complete(completed)
                producers.on_staged_written()
    producers.end_offset = max(producers.end_offset, end_offset)


def replay_batch(
    producers: ProducerStateManager, header: BatchHeader, marker: EndTxnMarker | None
) -> CompletedTxn | None:
    return producers.append(header, marker, ORIGIN_REPLICATION)


def marker_at(batch: bytes, header: BatchHeader) -> EndTxnMarker | None:
    """The marker of a control batch whose bytes were read on their own."""
    position = header.position
    header.position = 0
    marker = read_end_txn_marker(batch, header)
    header.position = position
    return marker
