"""How batches leave a log: by offset as slices of files, by timestamp as offsets (hot: compiled by mypyc)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from mypy_extensions import mypyc_attr

from braidlog.core.errors import CorruptLogError
from braidlog.core.protocol_errors import CorruptMessageError, OffsetOutOfRangeError
from braidlog.core.slices import FileSlice
from braidlog.storage.index.transaction_index import AbortedTxn
from braidlog.storage.log.batch_walk import BatchWalk
from braidlog.storage.log.local_log import LocalLog
from braidlog.storage.log.log_segment import LogSegment
from braidlog.wire.records.batch import NO_TIMESTAMP
from braidlog.wire.records.reading import find_timestamp

_log = logging.getLogger(__name__)


@mypyc_attr(acyclic=True)
class FetchDataInfo:
    """Whole batches from the one that holds the asked offset on; `slice` is None where there is nothing to read."""

    __slots__ = ("first_batch_size", "next_offset", "slice")

    def __init__(self, slice: FileSlice | None, next_offset: int, first_batch_size: int = 0) -> None:
        self.slice = slice
        # Where to read on; no batch of the slice reaches that far.
        self.next_offset = next_offset
        # Size of the first batch when it alone exceeds max_bytes (whether or not it is returned), else 0.
        self.first_batch_size = first_batch_size

    @property
    def size(self) -> int:
        return self.slice.size if self.slice is not None else 0


@dataclass(frozen=True)
class TimestampAndOffset:
    timestamp: int
    offset: int
    leader_epoch: int


class LogReader:
    def __init__(self, log: LocalLog) -> None:
        self._local_log = log

    def read(self, offset: int, max_bytes: int, limit_offset: int, min_one_batch: bool) -> FetchDataInfo:
        log = self._local_log
        end = log.log_end_offset
        if offset > end or offset < log.log_start_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {log.topic_partition} is outside of {log.log_start_offset} … {end}"
            )
        limit = limit_offset if limit_offset < end else end
        if offset >= limit:
            return FetchDataInfo(None, offset)
        try:
            return self._read(offset, max_bytes, limit, min_one_batch)
        except OSError as problem:
            raise log.fault(problem) from problem
        except CorruptLogError as problem:
            _log.error("%s: offset %d cannot be read: %s", log.topic_partition, offset, problem)
            raise CorruptMessageError(str(problem)) from problem

    def _read(self, offset: int, max_bytes: int, limit: int, min_one_batch: bool) -> FetchDataInfo:
        items = self._local_log.segments.items
        number = len(items) - 1
        segment = items[number]
        # Most readers are where the log is written.
        if offset < segment.base_offset:
            number = self._local_log.segments.floor(offset)
            segment = items[number]
        start = segment.position_of(offset)
        # Compaction may have left no batch at or past the offset in its own segment.
        while start >= segment.size:
            number += 1
            if number == len(items) or items[number].base_offset >= limit:
                return FetchDataInfo(None, offset)
            segment = items[number]
            start = 0
        upper = items[number + 1].base_offset if number + 1 < len(items) else self._local_log.log_end_offset
        stop = segment.size if limit >= upper else segment.position_of(limit)
        if stop <= start:
            return FetchDataInfo(None, offset)
        if stop - start <= max_bytes:
            return FetchDataInfo(segment.slice(start, stop - start), min(limit, upper))
        end, next_offset = segment.fit(start, stop, max(max_bytes, 0))
        if end > start:
            return FetchDataInfo(segment.slice(start, end - start), next_offset)
        first = segment.batch_at(start)
        size: int = first.size
        if not min_one_batch:
            return FetchDataInfo(None, offset, size)
        return FetchDataInfo(segment.slice(start, size), first.last_offset + 1, size)

    def aborted(self, start: int, end: int) -> list[AbortedTxn]:
        """What was aborted among the offsets `start` … `end` - 1."""
        found: list[AbortedTxn] = []
        items = self._local_log.segments.items
        try:
            for number in range(self._local_log.segments.floor(start), len(items)):
                if items[number].txn_index.collect(start, end, found):
                    break
        except OSError as problem:
            raise self._local_log.fault(problem) from problem
        return found

    def at_timestamp(self, timestamp: int) -> TimestampAndOffset | None:
        """The first record that is not older than `timestamp`; None if all are."""
        try:
            for segment in self._local_log.segments.items:
                if segment.max_timestamp >= timestamp:
                    found = self._find_timestamp(segment, timestamp)
                    if found is not None:
                        return found
        except OSError as problem:
            raise self._local_log.fault(problem) from problem
        return None

    def _find_timestamp(self, segment: LogSegment, timestamp: int) -> TimestampAndOffset | None:
        start_offset = self._local_log.log_start_offset
        # An entry of that very timestamp says where its batch ends, so the one before it is where to start.
        indexed = segment.time_index.floor(timestamp - 1)[1]
        walk = segment.walk(segment.offset_index.position_for(max(indexed, start_offset)))
        while walk.advance():
            if walk.max_timestamp >= timestamp and walk.last_offset >= start_offset:
                found = _first_record(walk, timestamp, start_offset)
                if found is not None:
                    return found
        return None

    def at_max_timestamp(self) -> TimestampAndOffset | None:
        """The first record that has the largest timestamp of the log; None in a log without timestamps."""
        largest = NO_TIMESTAMP
        try:
            for segment in self._local_log.segments.items:
                largest = max(largest, segment.max_timestamp)
        except OSError as problem:
            raise self._local_log.fault(problem) from problem
        return self.at_timestamp(largest) if largest >= 0 else None


def _first_record(walk: BatchWalk, timestamp: int, start_offset: int) -> TimestampAndOffset | None:
    epoch = walk.leader_epoch
    header = walk.header()
    header.position = 0
    found = find_timestamp(walk.read(), header, timestamp, start_offset)
    return None if found is None else TimestampAndOffset(found[0], found[1], epoch)
