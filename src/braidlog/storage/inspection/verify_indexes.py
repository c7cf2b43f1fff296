"""Do the indexes of a segment lead to its batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from braidlog.core.errors import CorruptLogError
from braidlog.storage.files import Files
from braidlog.storage.handles import HandlePool
from braidlog.storage.index.offset_index import OffsetIndex
from braidlog.storage.index.time_index import TimeIndex
from braidlog.storage.index.transaction_index import TransactionIndex
from braidlog.storage.log.segment_file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX
from braidlog.wire.records.batch import BatchHeader

_NO_LIMIT: Final = 1 << 62


@dataclass
class SegmentFacts:
    """What walking the segment showed."""

    base_offset: int
    # Path of the segment's files without their endings.
    stem: str
    next_offset: int = 0
    # Position of each batch → (base offset, last offset).
    batches: dict[int, tuple[int, int]] = field(default_factory=dict)
    # (base offset, largest timestamp up to its end) of each batch.
    timestamps: list[tuple[int, int]] = field(default_factory=list)

    def add(self, position: int, header: BatchHeader) -> None:
        self.batches[position] = (header.base_offset, header.last_offset)
        largest = self.timestamps[-1][1] if self.timestamps else -1
        self.timestamps.append((header.base_offset, max(largest, header.max_timestamp)))


def verify_indexes(files: Files, facts: SegmentFacts) -> Iterator[str]:
    """One message for each thing that does not fit."""
    handles = HandlePool(files, 8)
    for suffix, check in ((INDEX_SUFFIX, _offset_index), (TIME_INDEX_SUFFIX, _time_index)):
        path = facts.stem + suffix
        if not files.exists(path):
            yield f"{path} is missing: `braidlog log rebuild-index` builds it again"
            continue
        yield from check(files, handles, path, facts)
    yield from _txn_index(files, handles, facts)


def _offset_index(files: Files, handles: HandlePool, path: str, facts: SegmentFacts) -> Iterator[str]:
    index = OffsetIndex(files, handles, path, facts.base_offset, _NO_LIMIT)
    last_offset, last_position = facts.base_offset - 1, -1
    for number in range(index.count):
        offset, position = index.entry(number)
        batch = facts.batches.get(position)
        if offset <= last_offset or position <= last_position:
            yield f"{path}: entry {number} (offset {offset}, position {position}) does not ascend"
            return
        if batch is None:
            yield f"{path}: entry {number} leads to position {position}, where no batch starts"
            return
        # A follower indexes several batches at once: the last offset of all at the position of the first.
        if not batch[1] <= offset < max(facts.next_offset, 1):
            yield f"{path}: entry {number} leads offset {offset} to the batch of {batch[0]} … {batch[1]}"
            return
        last_offset, last_position = offset, position


def _time_index(files: Files, handles: HandlePool, path: str, facts: SegmentFacts) -> Iterator[str]:
    index = TimeIndex(files, handles, path, facts.base_offset, _NO_LIMIT)
    last_timestamp, last_offset = -1, facts.base_offset - 1
    batch = 0
    largest = -1
    for number in range(index.count):
        timestamp, offset = index.entry(number)
        if timestamp <= last_timestamp or offset < last_offset:
            yield f"{path}: entry {number} (timestamp {timestamp}, offset {offset}) does not ascend"
            return
        if not facts.base_offset <= offset < max(facts.next_offset, facts.base_offset + 1):
            yield f"{path}: entry {number} names offset {offset}, which the segment does not have"
            return
        while batch < len(facts.timestamps) and facts.timestamps[batch][0] <= offset:
            largest = facts.timestamps[batch][1]
            batch += 1
        if largest != timestamp:
            yield f"{path}: entry {number} gives {timestamp} as the youngest up to offset {offset}, but {largest} is"
            return
        last_timestamp, last_offset = timestamp, offset


def _txn_index(files: Files, handles: HandlePool, facts: SegmentFacts) -> Iterator[str]:
    path = facts.stem + TXN_INDEX_SUFFIX
    try:
        for entry in TransactionIndex(files, handles, path).entries():
            if not facts.base_offset <= entry.last_offset < max(facts.next_offset, facts.base_offset + 1):
                yield f"{path}: the marker at offset {entry.last_offset} is not in this segment"
                return
    except CorruptLogError as problem:
        yield str(problem)
