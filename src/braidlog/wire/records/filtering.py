"""What the log cleaner does to a batch: list its keys, build it again without some records (hot: compiled by mypyc)."""

from __future__ import annotations

from librt.strings import BytesWriter
from mypy_extensions import i64

from braidlog.core.protocol_errors import CorruptMessageError, InvalidRecordError
from braidlog.wire.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    NO_TIMESTAMP,
    BatchHeader,
)
from braidlog.wire.records.builder import build_message_set
from braidlog.wire.records.compression import DEFAULT_LIMIT, compress
from braidlog.wire.records.encoding import encode_header
from braidlog.wire.records.reading import read_batch, read_nullable, records_of
from braidlog.wire.records.scan import SMALLEST_RECORD
from braidlog.wire.records.varint import INT64_MAX, INT64_MIN, read_varint, read_varlong, varint_size, write_varint

# (key, offset, timestamp, has a value)
RecordSummary = tuple[bytes | None, int, int, bool]


def key_offsets(buffer: bytes, header: BatchHeader, *, limit: int = DEFAULT_LIMIT) -> list[tuple[bytes | None, int]]:
    """(key, offset) of every record in order, for the cleaner's offset map; None where there is no key."""
    return [(key, offset) for key, offset, _, _ in record_summaries(buffer, header, limit=limit)]


def record_summaries(buffer: bytes, header: BatchHeader, *, limit: int = DEFAULT_LIMIT) -> list[RecordSummary]:
    """(key, offset, timestamp, has value) of every record: what the cleaner decides by."""
    if header.magic < 2:
        return [
            (record.key, record.offset, record.timestamp, record.value is not None)
            for record in read_batch(buffer, header, check_crc=False, limit=limit)
        ]
    content, start, end = _checked_records_of(buffer, header, limit)
    return _summaries(content, start, end, header)


def _checked_records_of(buffer: bytes, header: BatchHeader, limit: int) -> tuple[bytes, int, int]:
    """Where the records of a v2 batch lie once decompressed: (buffer, start, end)."""
    if header.position + header.size > len(buffer):
        raise CorruptMessageError(f"a record batch of {header.size} bytes is cut short")
    if header.count < 0:
        raise InvalidRecordError(f"a record batch declares {header.count} records")
    return records_of(buffer, header, limit)


def _record_end(content: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """(position after the length, position after the record) of the record at `at`."""
    length, at = read_varint(content, at, end)
    if length < SMALLEST_RECORD or length > end - at:
        raise InvalidRecordError(f"a record declares {length} bytes where {end - at} are left")
    return at, at + length


def _summaries(content: bytes, start: i64, end: i64, header: BatchHeader) -> list[RecordSummary]:
    summaries: list[RecordSummary] = []
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    fixed_timestamp = header.is_log_append_time
    count: i64 = header.count
    at: i64 = start
    while count > 0:
        at, stop = _record_end(content, at, end)
        timestamp_delta, at = read_varlong(content, at + 1, stop)
        offset_delta, at = read_varint(content, at, stop)
        key, at = read_nullable(content, at, stop)
        value_length, at = read_varint(content, at, stop)
        timestamp = header.max_timestamp if fixed_timestamp else base_timestamp + int(timestamp_delta)
        summaries.append((key, base_offset + int(offset_delta), timestamp, value_length >= 0))
        at = stop
        count -= 1
    return summaries


def retain(
    buffer: bytes,
    header: BatchHeader,
    keep: list[bool],
    *,
    delete_horizon_ms: int | None = None,
    keep_empty: bool = False,
    level: int | None = None,
    limit: int = DEFAULT_LIMIT,
) -> bytes | None:
    """The batch with only the records whose `keep` is true; None when nothing is left and it may go.

    Base offset, last offset delta and producer fields stay, so that offsets and sequences survive compaction;
    with `keep_empty` a batch that lost every record stays as its bare header. `delete_horizon_ms` marks a batch
    that has no mark yet (KIP-534): the horizon takes the base timestamp's place and deltas count from it.
    """
    marking = delete_horizon_ms is not None and header.magic >= 2 and not header.has_delete_horizon
    if all(keep) and not marking and (keep or keep_empty):
        return buffer[header.position : header.position + header.size]
    if True not in keep:
        return empty_batch(header) if keep_empty and header.magic >= 2 else None
    if header.magic < 2:
        return _retain_messages(buffer, header, keep, level, limit)
    if len(keep) != header.count:
        raise ValueError(f"{len(keep)} decisions for the {header.count} records of a batch")
    content, start, end = _checked_records_of(buffer, header, limit)
    base_timestamp = header.base_timestamp
    if marking and delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    out = BytesWriter()
    max_timestamp = _copy_kept(content, start, end, header.base_timestamp, base_timestamp, keep, out)
    body = compress(header.codec, out.getvalue(), level)
    head = encode_header(
        body,
        header.base_offset,
        header.leader_epoch,
        header.attributes | DELETE_HORIZON if marking else header.attributes,
        header.last_offset_delta,
        base_timestamp,
        header.max_timestamp if header.is_log_append_time else max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        sum(keep),
    )
    return head + body


def _copy_kept(
    content: bytes, start: i64, end: i64, base_timestamp: int, new_base: int, keep: list[bool], out: BytesWriter
) -> int:
    """Write the kept records, their timestamps counted from `new_base`; returns the latest timestamp kept."""
    max_timestamp = NO_TIMESTAMP
    at: i64 = start
    for kept in keep:
        record_start: i64 = at
        at, stop = _record_end(content, at, end)
        if kept:
            delta, rest = read_varlong(content, at + 1, stop)
            timestamp = base_timestamp + int(delta)
            if timestamp > max_timestamp:
                max_timestamp = timestamp
            if base_timestamp == new_base:
                out.write(content[record_start:stop])
            else:
                if timestamp - new_base > INT64_MAX or timestamp - new_base < INT64_MIN:
                    raise InvalidRecordError("a record has an impossible timestamp")
                new_delta: i64 = timestamp - new_base
                write_varint(out, 1 + varint_size(new_delta) + stop - rest)
                out.append(content[at])
                write_varint(out, new_delta)
                out.write(content[rest:stop])
        at = stop
    return max_timestamp


def _retain_messages(buffer: bytes, header: BatchHeader, keep: list[bool], level: int | None, limit: int) -> bytes:
    """What stays of a compressed message of an old format; a plain one is a single record, kept whole or not."""
    records = read_batch(buffer, header, check_crc=False, limit=limit)
    if len(keep) != len(records):
        raise ValueError(f"{len(keep)} decisions for the {len(records)} records of a message")
    return build_message_set(
        [record for record, kept in zip(records, keep, strict=True) if kept],
        magic=header.magic,
        codec=header.codec,
        level=level,
        log_append_time_ms=header.max_timestamp if header.is_log_append_time else None,
        keep_offsets=True,
    )


def empty_batch(header: BatchHeader) -> bytes:
    """A batch without records that keeps the offsets and the producer's last sequence of `header`."""
    return encode_header(
        b"",
        header.base_offset,
        header.leader_epoch,
        header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
        header.last_offset_delta,
        NO_TIMESTAMP,
        header.max_timestamp,
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
        0,
    )
