"""Producer state on disk: `<offset>.snapshot` holds what all batches below that offset have left.

    0         2            6            10
    +---------+------------+------------+-------------------------------------------------------------+
    | version | crc32c of  | number of  | entries of 54 bytes                                         |
    | 1 (i16) | the rest   | entries    |                                                             |
    +---------+------------+------------+-------------------------------------------------------------+

    entry: producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32, timestamp i64,
           coordinator epoch i32, first offset of the open transaction i64 (-1 for none); all big-endian

Only the last batch of a producer is kept, so after a restart only that one is recognised when it comes again.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import Final

from braidlog.core.errors import CorruptLogError
from braidlog.storage.files import Files
from braidlog.storage.log.segment_file_names import SNAPSHOT_SUFFIX, file_name
from braidlog.storage.producers.producer_state_manager import BatchMetadata, ProducerStateEntry, ProducerStateManager
from braidlog.wire.records.checksum import crc32c

_VERSION: Final = 1
_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")

_log = logging.getLogger(__name__)


def snapshot_offset(name: str) -> int | None:
    """The offset in a snapshot's name; None for the name of any other file."""
    digits = name.removesuffix(SNAPSHOT_SUFFIX)
    return int(digits) if name.endswith(SNAPSHOT_SUFFIX) and digits.isascii() and digits.isdigit() else None


def encode_snapshot(producers: list[ProducerStateEntry]) -> bytes:
    body = bytearray(_COUNT.pack(len(producers)))
    for entry in producers:
        body += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            entry.last_sequence,
            entry.last_offset,
            entry.last_offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.txn_first_offset,
        )
    return _HEAD.pack(_VERSION, crc32c(bytes(body), 0)) + bytes(body)


def decode_snapshot(data: bytes, path: str) -> list[ProducerStateEntry]:
    """Raises CorruptLogError for anything but a whole snapshot of version 1."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptLogError(f"{path}: {len(data)} bytes are too few for a producer snapshot")
    version, stored = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptLogError(f"{path}: producer snapshot of version {version}, expected {_VERSION}")
    body = data[_HEAD.size :]
    if crc32c(body, 0) != stored:
        raise CorruptLogError(f"{path}: producer snapshot is corrupt (its checksum differs)")
    count = _COUNT.unpack_from(body)[0]
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptLogError(f"{path}: {len(data)} bytes do not hold {count} producers")
    producers: list[ProducerStateEntry] = []
    for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first = fields
        # A producer known only by a marker has no batch.
        batches = [BatchMetadata(sequence, offset, delta, timestamp)] if offset >= 0 else []
        producers.append(ProducerStateEntry(producer_id, epoch, batches, timestamp, coordinator_epoch, txn_first))
    return producers


class SnapshotFiles:
    """The snapshots of one log: at the base of every segment that was rolled to, and at the end of a closed log."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        # Ascending.
        self.offsets: list[int] = []

    def find(self, names: list[str]) -> None:
        """Take stock of the directory's files."""
        offsets = (snapshot_offset(name) for name in names)
        self.offsets = sorted(offset for offset in offsets if offset is not None)

    def path(self, offset: int) -> str:
        return f"{self._directory}/{file_name(offset, SNAPSHOT_SUFFIX)}"

    def write(self, state: ProducerStateManager, *, sync: bool) -> None:
        """Unless there is one at `state.end_offset` already."""
        offset = state.end_offset
        if offset not in self.offsets:
            data = encode_snapshot(list(state.producers.values()))
            self._files.write_atomic(self.path(offset), data, sync=sync)
            self.offsets.append(offset)
            self.offsets.sort()

    def load(self, state: ProducerStateManager, start_offset: int, end_offset: int, now_ms: int) -> None:
        """Set `state` to the newest snapshot not past `end_offset`; without one, empty at `start_offset`.

        A corrupt one is removed and the one before it taken.
        """
        state.clear(start_offset)
        for offset in reversed([offset for offset in self.offsets if start_offset < offset <= end_offset]):
            path = self.path(offset)
            try:
                entries = decode_snapshot(self._files.read_bytes(path), path)
            except CorruptLogError as problem:
                _log.warning("%s; removed, producer state is read from an earlier one and the log", problem)
                self.remove(offset)
                continue
            for entry in entries:
                if not state.is_expired(entry, now_ms):
                    state.restore(entry)
            state.sort_transactions()
            state.end_offset = offset
            return

    def remove_outside(self, start_offset: int, end_offset: int) -> None:
        """A snapshot past the end of the log, or not past its start, has nothing to say about it."""
        for offset in [offset for offset in self.offsets if not start_offset < offset <= end_offset]:
            self.remove(offset)

    def remove_stray(self, bases: list[int]) -> None:
        """Keep those at a segment's base, and one past the last base that a closed log left."""
        last_base = bases[-1] if bases else 0
        keep = self.offsets[-1] if self.offsets and self.offsets[-1] > last_base else None
        known = set(bases)
        for offset in [offset for offset in self.offsets if offset not in known and offset != keep]:
            self.remove(offset)

    def remove(self, offset: int) -> None:
        if offset in self.offsets:
            self.offsets.remove(offset)
            path = self.path(offset)
            if self._files.exists(path):
                self._files.remove(path)

    def mark_deleted(self, offset: int, suffix: str) -> str | None:
        """Rename the snapshot that goes with a deleted segment; its new path, or None where there is none."""
        if offset not in self.offsets:
            return None
        self.offsets.remove(offset)
        path = self.path(offset)
        self._files.rename(path, path + suffix)
        return path + suffix

    def sync_newest(self) -> None:
        """Make what was written without sync survive a power cut. Any thread."""
        newest = self.offsets[-1:]
        if newest:
            self._files.sync_file(self.path(newest[0]))

    def move_to(self, directory: str) -> None:
        self._directory = directory
