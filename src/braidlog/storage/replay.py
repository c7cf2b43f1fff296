"""Producer state from the batches of a log, by their headers (hot: compiled by mypyc)."""

from __future__ import annotations

from braidlog.storage.markers import read_marker
from braidlog.storage.producer_state import CompletedTxn, Marker, ProducerState
from braidlog.storage.segment import Segment
from braidlog.wire.records.batch import BatchHeader
from braidlog.wire.records.validation import ORIGIN_REPLICATION


def replay_producers(producers: ProducerState, segments: list[Segment], end_offset: int) -> None:
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
                marker: Marker | None = None
                if header.is_control:
                    marker = marker_at(walk.read(), header)
                completed = replay_batch(producers, header, marker)
                if completed is not None:
                    producers.complete(completed)
                producers.settle()
    producers.end_offset = max(producers.end_offset, end_offset)


def replay_batch(producers: ProducerState, header: BatchHeader, marker: Marker | None) -> CompletedTxn | None:
    return producers.append(header, marker, ORIGIN_REPLICATION)


def marker_at(batch: bytes, header: BatchHeader) -> Marker | None:
    """The marker of a control batch whose bytes were read on their own."""
    position = header.position
    header.position = 0
    marker = read_marker(batch, header)
    header.position = position
    return marker
