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

from struct import Struct
from typing import Final

from crc32c import crc32c

from braidlog.core.errors import CorruptLogError
from braidlog.storage.producer_state import BatchMetadata, ProducerEntry

SNAPSHOT_SUFFIX: Final = ".snapshot"
_VERSION: Final = 1
_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")


def snapshot_name(offset: int) -> str:
    return f"{offset:020d}{SNAPSHOT_SUFFIX}"


def snapshot_offset(name: str) -> int | None:
    """The offset in a snapshot's name; None for the name of any other file."""
    digits = name.removesuffix(SNAPSHOT_SUFFIX)
    return int(digits) if name.endswith(SNAPSHOT_SUFFIX) and digits.isascii() and digits.isdigit() else None


def encode_snapshot(producers: list[ProducerEntry]) -> bytes:
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
    return _HEAD.pack(_VERSION, crc32c(bytes(body))) + bytes(body)


def decode_snapshot(data: bytes, path: str) -> list[ProducerEntry]:
    """Raises CorruptLogError for anything but a whole snapshot of version 1."""
    if len(data) < _HEAD.size + _COUNT.size:
        raise CorruptLogError(f"{path}: {len(data)} bytes are too few for a producer snapshot")
    version, stored = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptLogError(f"{path}: producer snapshot of version {version}, expected {_VERSION}")
    body = data[_HEAD.size :]
    if crc32c(body) != stored:
        raise CorruptLogError(f"{path}: producer snapshot is corrupt (its checksum differs)")
    count = _COUNT.unpack_from(body)[0]
    if len(body) != _COUNT.size + count * _ENTRY.size:
        raise CorruptLogError(f"{path}: {len(data)} bytes do not hold {count} producers")
    producers: list[ProducerEntry] = []
    for fields in _ENTRY.iter_unpack(body[_COUNT.size :]):
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first = fields
        # A producer known only by a marker has no batch.
        batches = [BatchMetadata(sequence, offset, delta, timestamp)] if offset >= 0 else []
        producers.append(ProducerEntry(producer_id, epoch, batches, timestamp, coordinator_epoch, txn_first))
    return producers
