"""Record batches and message sets of every format and codec, as producers, leaders and disks hand them over."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from functools import cache

from braidlog.core.protocol_errors import (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from braidlog.core.slices import ByteSlice
from braidlog.wire.records.append_policy import AppendPolicy
from braidlog.wire.records.batch import (
    CODEC_GZIP,
    CODEC_LZ4,
    CODEC_NONE,
    CODEC_SNAPPY,
    CODEC_ZSTD,
    iterate_headers,
)
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.checksum import crc32c
from braidlog.wire.records.columns import RecordColumns
from braidlog.wire.records.columns_parsing import parse_batch
from braidlog.wire.records.compression import compress, decompress, most_decompressed
from braidlog.wire.records.control_records import end_txn_marker, read_end_txn_marker
from braidlog.wire.records.conversion import down_convert
from braidlog.wire.records.filtering import key_offsets, record_summaries, retain
from braidlog.wire.records.reading import Record, find_timestamp, read_batch, read_records
from braidlog.wire.records.validation import (
    LATEST_PRODUCE_VERSION,
    ORIGIN_REPLICATION,
    validate_for_append,
    work_to_validate,
)
from tools.fuzz.target import KIB, MIB, Target

REFUSALS = (
    CorruptMessageError,
    InvalidRecordError,
    InvalidTimestampError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
CODECS = (CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD)
# What a run may unpack.
_LIMIT = 256 * KIB
_BOMB = 64 * MIB
_NOW_MS = 1_700_000_000_000
_BATCH_AT = 17
_CRC_AT = 12

# Bits of an input's first byte.
_RIGHT_CHECKSUMS = 1
_COMPACTED = 2
_LOG_APPEND_TIME = 4
_RECOMPRESSED = 8


@cache
def record_sets() -> Sequence[bytes]:
    records = [
        Record(offset=number, timestamp=_NOW_MS + number, key=key, value=value, headers=headers)
        for number, (key, value, headers) in enumerate(
            [
                (b"k", b"value", ()),
                (None, b"", (("h", b"x"), ("", None))),
                (b"key" * 20, None, (("header", b"v" * 40),)),
                (b"", b"v" * 200, ()),
            ]
        )
    ]
    found: list[bytes] = []
    for codec in CODECS:
        found.append(build_batch(records, codec=codec))
        found.append(build_batch(records[:1], codec=codec))
        found.append(build_batch(records, codec=codec) * 2)
        if codec != CODEC_ZSTD:
            found += (
                build_message_set(
                    [Record(offset=r.offset, timestamp=r.timestamp, key=r.key, value=r.value) for r in records],
                    magic=magic,
                    codec=codec,
                )
                for magic in (0, 1)
            )
    flags = (_RIGHT_CHECKSUMS, _RIGHT_CHECKSUMS | _COMPACTED, _RIGHT_CHECKSUMS | _LOG_APPEND_TIME)
    return [bytes((flag,)) + each for each in found for flag in (*flags, _RIGHT_CHECKSUMS | _RECOMPRESSED, 0)]


def _with_right_checksums(content: bytes) -> bytes:
    """Else hardly any change would get past the checksum."""
    result = bytearray(content)
    at = 0
    while len(result) - at >= _BATCH_AT:
        (size,) = struct.unpack_from(">i", result, at + 8)
        end = at + 12 + size
        if size <= 5 or end > len(result):
            break
        if result[at + 16] >= 2:
            if end - at < 21:
                break
            struct.pack_into(">I", result, at + 17, crc32c(bytes(result[at + 21 : end]), 0))
        else:
            struct.pack_into(">I", result, at + _CRC_AT, zlib.crc32(bytes(result[at + 16 : end])))
        at = end
    return bytes(result)


def _sets(data: bytes) -> tuple[int, bytes]:
    flags = data[0] if data else 0
    return flags, _with_right_checksums(data[1:]) if flags & _RIGHT_CHECKSUMS else data[1:]


def append(data: bytes) -> None:
    """A producer's records: what is accepted can be read by everybody."""
    flags, content = _sets(data)
    policy = AppendPolicy(
        max_message_bytes=64 * KIB,
        compacted=bool(flags & _COMPACTED),
        log_append_time=bool(flags & _LOG_APPEND_TIME),
        codec=CODEC_LZ4 if flags & _RECOMPRESSED else None,
        max_decompressed_bytes=_LIMIT,
    )
    records = ByteSlice(content, 0, len(content))
    work_to_validate(records, policy, MIB)
    is_old = len(content) >= _BATCH_AT and content[_BATCH_AT - 1] < 2
    validated = validate_for_append(
        records,
        first_offset=100,
        leader_epoch=3,
        now_ms=_NOW_MS,
        policy=policy,
        produce_version=2 if is_old else LATEST_PRODUCE_VERSION,
    )
    stored = b"".join(bytes(part) for part in validated.parts)
    found = read_records(stored, check_crc=False)
    offsets = [record.offset for record in found]
    if offsets != list(range(100, 100 + len(found))):
        raise AssertionError(f"the records got the offsets {offsets[:10]}")
    _require_columns_alike(stored, found)


def append_replicated(data: bytes) -> None:
    """A leader's records, which keep their offsets."""
    _, content = _sets(data)
    records = ByteSlice(content, 0, len(content))
    validate_for_append(
        records,
        first_offset=0,
        leader_epoch=3,
        now_ms=_NOW_MS,
        policy=AppendPolicy(),
        origin=ORIGIN_REPLICATION,
    )


def read(data: bytes) -> None:
    """A fetched set, or one that lies on a disk, as clients, compaction and tools read it."""
    _, content = _sets(data)
    headers = iterate_headers(content, 0, len(content))
    found: list[Record] = []
    for header in headers:
        found += read_batch(content, header, limit=_LIMIT)
        key_offsets(content, header, limit=_LIMIT)
        summaries = record_summaries(content, header, limit=_LIMIT)
        retain(content, header, [number % 2 == 0 for number in range(len(summaries))], limit=_LIMIT)
        find_timestamp(content, header, _NOW_MS + 2, 0)
        if header.magic >= 2 and header.is_control:
            read_end_txn_marker(content, header)
    for record in found[:10]:
        end_txn_marker(record)


def read_columns(data: bytes) -> None:
    _, content = _sets(data)
    columns = RecordColumns()
    for header in iterate_headers(content, 0, len(content)):
        parse_batch(content, header, columns, limit=_LIMIT)


def read_down_converted(data: bytes) -> None:
    flags, content = _sets(data)
    down_convert(content, 0, len(content), magic=flags >> 7, check_crc=True, limit=_LIMIT)


def _require_columns_alike(stored: bytes, found: list[Record]) -> None:
    columns = RecordColumns()
    for header in iterate_headers(stored, 0, len(stored)):
        parse_batch(stored, header, columns, check=False)
    if columns.count != len(found):
        raise AssertionError(f"{columns.count} rows of {len(found)} records")


# Compression


@cache
def compressed() -> Sequence[bytes]:
    """The first byte is the codec, the second the format: lz4 differs."""
    found: list[bytes] = []
    for codec in CODECS[1:]:
        for content in (b"", b"a", b"abc" * 100, bytes(range(256)) * 20):
            found += (
                bytes((codec, magic)) + compress(codec, content, magic=magic)
                for magic in ((0, 1, 2) if codec == CODEC_LZ4 else (2,))
            )
        found.append(bytes((codec, 2)) + _bomb(codec))
    return found


@cache
def _bomb(codec: int) -> bytes:
    """Its end is missing where it is long; what matters is how it begins."""
    return compress(codec, bytes(_BOMB))[: 4 * KIB]


def unpack(data: bytes) -> None:
    if len(data) < 2:
        return
    codec, magic = CODECS[1 + (data[0] - 1) % 4], data[1] % 3
    if most_decompressed(codec, data, 2, len(data), _LIMIT) < 0:
        raise AssertionError("less than nothing")
    unpacked = decompress(codec, data, 2, len(data), limit=_LIMIT, magic=magic)
    if len(unpacked) > _LIMIT:
        raise AssertionError(f"{len(unpacked)} bytes were unpacked, with a limit of {_LIMIT}")


# An object of a record takes about 400 bytes and stands for seven, which may come of a few compressed ones.
_OF_RECORDS = 80 * _LIMIT
TARGETS = (
    Target("append", append, REFUSALS, record_sets, fixed_bytes=_OF_RECORDS),
    Target("append_replicated", append_replicated, REFUSALS, record_sets),
    Target("read_records", read, REFUSALS, record_sets, fixed_bytes=_OF_RECORDS),
    Target("read_columns", read_columns, REFUSALS, record_sets, fixed_bytes=_OF_RECORDS),
    Target("down_convert", read_down_converted, REFUSALS, record_sets, fixed_bytes=_OF_RECORDS),
    Target("decompress", unpack, REFUSALS, compressed, fixed_bytes=8 * _LIMIT, bytes_per_byte=50),
)
