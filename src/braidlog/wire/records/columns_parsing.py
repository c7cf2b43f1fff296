"""Record batches to columns, without an object per record (hot: compiled by mypyc).

The walk makes the checks of `reading.read_batch`, with the primitives of `scan`, and fails with the same errors; the
tests compare the two. Messages of the formats before v2, which no log of this decade holds in numbers, take the way
over objects.
"""

from __future__ import annotations

from typing import Final

from librt.strings import write_i32_le, write_i64_le
from mypy_extensions import i32, i64

from braidlog.core.protocol_errors import CorruptMessageError, InvalidRecordError
from braidlog.wire.records.batch import CODEC_NONE, HEADER_SIZE, BatchHeader, check_crc
from braidlog.wire.records.columns import RecordColumns
from braidlog.wire.records.compression import DEFAULT_LIMIT, decompress
from braidlog.wire.records.reading import Record, read_batch
from braidlog.wire.records.scan import SMALLEST_RECORD
from braidlog.wire.records.varint import INT64_MAX, INT64_MIN, read_varint, read_varlong

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1
NO_TIMESTAMP_TYPE: Final = -1

# The last offset that a batch may start at: an offset delta takes up to 31 bits.
_LAST_BASE_OFFSET: Final = INT64_MAX - 0x80000000


def parse_batch(
    buffer: bytes,
    header: BatchHeader,
    columns: RecordColumns,
    position: int = INT64_MIN,
    until: int = INT64_MAX,
    most: int = INT64_MAX,
    check: bool = True,
    limit: int = DEFAULT_LIMIT,
) -> int:
    """Add the records of one batch whose offsets lie in [position, until) to `columns`.

    Returns -1, or the offset to go on at when `most` records were added before the batch's end. Every record of the
    batch is checked in any case.
    """
    if header.position + header.size > len(buffer):
        raise CorruptMessageError(f"a record batch of {header.size} bytes is cut short")
    if check:
        check_crc(buffer, header)
    if header.magic < 2:
        return _add_messages(buffer, header, columns, position, until, most, check, limit)
    if header.base_offset > _LAST_BASE_OFFSET:
        raise InvalidRecordError(f"a record batch starts at the impossible offset {header.base_offset}")
    start = header.position + HEADER_SIZE
    end = header.position + header.size
    if header.codec != CODEC_NONE and header.count != 0:
        buffer = decompress(header.codec, buffer, start, end, limit=limit)
        start = 0
        end = len(buffer)
    if header.count < 0:
        raise InvalidRecordError(f"a record batch declares {header.count} records")
    walk = _Walk(columns, columns.index_of(buffer), position, until, most)
    _walk_records(buffer, start, end, header, walk)
    columns.size += end - start
    columns.end_batch(walk.added, LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME, header.leader_epoch)
    return walk.resume_at


class _Walk:
    """What the walk over one batch's records takes and leaves beside the batch itself."""

    __slots__ = ("added", "columns", "index", "most", "position", "resume_at", "until")

    def __init__(self, columns: RecordColumns, index: int, position: int, until: int, most: int) -> None:
        self.columns = columns
        self.index: i64 = index
        self.position: i64 = position
        self.until: i64 = until
        self.most: i64 = most
        self.added: i64 = 0
        self.resume_at: i64 = -1


def _walk_records(buffer: bytes, start: i64, end: i64, header: BatchHeader, walk: _Walk) -> None:
    """Check the records in `buffer[start:end]`, which they must fill exactly, and add those that are wanted."""
    columns = walk.columns
    keys = columns.keys
    values = columns.values
    wants_keys = columns.wants_keys
    wants_values = columns.wants_values
    wants_headers = columns.wants_headers
    wants_offsets = columns.wants_offsets
    wants_timestamps = columns.wants_timestamps
    source: i64 = walk.index
    position: i64 = walk.position
    until: i64 = walk.until
    most: i64 = walk.most
    added: i64 = 0
    base_offset: i64 = header.base_offset
    fixed_timestamp = header.is_log_append_time
    base_timestamp: i64 = header.base_timestamp
    # Deltas that keep base_timestamp + delta within 64 bits.
    least_delta: i64 = INT64_MIN - base_timestamp if base_timestamp < 0 else INT64_MIN
    most_delta: i64 = INT64_MAX - base_timestamp if base_timestamp > 0 else INT64_MAX
    if fixed_timestamp:
        base_timestamp = header.max_timestamp
    count: i64 = header.count
    at: i64 = start
    index: i64 = 0
    while index < count:
        byte: i64
        length: i64
        delta: i64
        # Numbers of one or two bytes are read here, longer ones by the functions that also find what is cut short.
        if end - at < 2:
            length, at = read_varint(buffer, at, end)
        else:
            byte = buffer[at]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                at += 1
            else:
                byte = (byte & 0x7F) | i64(buffer[at + 1]) << 7
                if byte < 0x4000:
                    length = (byte >> 1) ^ -(byte & 1)
                    at += 2
                else:
                    length, at = read_varint(buffer, at, end)
        if length < SMALLEST_RECORD or length > end - at:
            raise InvalidRecordError(f"record {index} declares {length} bytes where {end - at} are left")
        record_end: i64 = at + length

        # attributes: one byte that no format version uses yet
        time_delta: i64
        byte = buffer[at + 1]
        if byte < 0x80:
            time_delta = (byte >> 1) ^ -(byte & 1)
            at += 2
        else:
            time_delta, at = read_varlong(buffer, at + 1, record_end)
        if record_end - at < 2:
            delta, at = read_varint(buffer, at, record_end)
        else:
            byte = buffer[at]
            if byte < 0x80:
                delta = (byte >> 1) ^ -(byte & 1)
                at += 1
            else:
                byte = (byte & 0x7F) | i64(buffer[at + 1]) << 7
                if byte < 0x4000:
                    delta = (byte >> 1) ^ -(byte & 1)
                    at += 2
                else:
                    delta, at = read_varint(buffer, at, record_end)

        key_length: i64
        if at < record_end and buffer[at] < 0x80:
            byte = buffer[at]
            key_length = (byte >> 1) ^ -(byte & 1)
            at += 1
        else:
            key_length, at = read_varint(buffer, at, record_end)
        key_at: i64 = at
        if key_length > 0:
            if key_length > record_end - at:
                raise InvalidRecordError(f"a record field of {key_length} bytes does not fit in its record")
            at += key_length

        value_length: i64
        if record_end - at < 2:
            value_length, at = read_varint(buffer, at, record_end)
        else:
            byte = buffer[at]
            if byte < 0x80:
                value_length = (byte >> 1) ^ -(byte & 1)
                at += 1
            else:
                byte = (byte & 0x7F) | i64(buffer[at + 1]) << 7
                if byte < 0x4000:
                    value_length = (byte >> 1) ^ -(byte & 1)
                    at += 2
                else:
                    value_length, at = read_varint(buffer, at, record_end)
        value_at: i64 = at
        if value_length > 0:
            if value_length > record_end - at:
                raise InvalidRecordError(f"a record field of {value_length} bytes does not fit in its record")
            at += value_length

        offset: i64 = base_offset + delta
        wanted = offset >= position and offset < until and added < most
        if wanted and wants_headers:
            write_i32_le(columns.header_starts, i32(columns.header_keys.count))
        if at < record_end and buffer[at] == 0:
            at += 1
        else:
            at = _walk_headers(buffer, at, record_end, columns if wanted and wants_headers else None, source)
        if at != record_end:
            raise InvalidRecordError(f"record {index} declares {record_end - at} bytes more than it has")
        if not fixed_timestamp and (time_delta < least_delta or time_delta > most_delta):
            raise InvalidRecordError(f"record {index} has an impossible timestamp")
        index += 1
        if not wanted:
            if added == most and walk.resume_at < 0 and offset >= position and offset < until:
                walk.resume_at = offset
            continue
        added += 1
        if wants_offsets:
            write_i64_le(columns.offsets, offset)
        if wants_timestamps:
            write_i64_le(columns.timestamps, base_timestamp if fixed_timestamp else base_timestamp + time_delta)
        if wants_keys:
            if key_length < 0:
                keys.add_null()
            else:
                keys.add(buffer, key_at, key_length, source)
        if wants_values:
            if value_length < 0:
                values.add_null()
            else:
                values.add(buffer, value_at, value_length, source)
    if at != end:
        raise InvalidRecordError(f"{end - at} bytes are left after the {count} records of the batch")
    walk.added = added


def _walk_headers(buffer: bytes, at: i64, end: i64, columns: RecordColumns | None, source: i64) -> i64:
    """Check a record's headers, add them to `columns` if given; returns the position after them."""
    count, at = read_varint(buffer, at, end)
    if count < 0 or count > end - at:
        raise InvalidRecordError(f"a record of {end - at} more bytes declares {count} headers")
    while count > 0:
        key_length, at = read_varint(buffer, at, end)
        if key_length > end - at:
            raise InvalidRecordError(f"a record field of {key_length} bytes does not fit in its record")
        if key_length < 0:
            raise InvalidRecordError("a record has a header without a key")
        key_at: i64 = at
        length, at = read_varint(buffer, at + key_length, end)
        if length > end - at:
            raise InvalidRecordError(f"a record field of {length} bytes does not fit in its record")
        if columns is not None:
            columns.header_keys.add(buffer, key_at, key_length, source)
            if length < 0:
                columns.header_values.add_null()
            else:
                columns.header_values.add(buffer, at, length, source)
        if length > 0:
            at += length
        count -= 1
    return at


def _add_messages(
    buffer: bytes,
    header: BatchHeader,
    columns: RecordColumns,
    position: int,
    until: int,
    most: int,
    check: bool,
    limit: int,
) -> int:
    """The same for an old message: its records as objects first, their bytes laid into a buffer of their own."""
    records = read_batch(buffer, header, check_crc=check, limit=limit)
    wanted = [record for record in records if position <= record.offset < until]
    kept = wanted[:most]
    pieces: list[bytes] = []
    for record in kept:
        pieces.append(record.key or b"")
        pieces.append(record.value or b"")
    content = b"".join(pieces)
    columns.size += len(content)
    index = columns.index_of(content)
    at = 0
    for record in kept:
        at = _add_record(record, columns, content, at, index)
    kind = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
    columns.end_batch(len(kept), kind if header.magic == 1 else NO_TIMESTAMP_TYPE, header.leader_epoch)
    return wanted[most].offset if len(wanted) > most else -1


def _add_record(record: Record, columns: RecordColumns, content: bytes, at: int, index: int) -> int:
    """Returns the position in `content` after the record's key and value."""
    if columns.wants_headers:
        write_i32_le(columns.header_starts, i32(columns.header_keys.count))
    if columns.wants_offsets:
        write_i64_le(columns.offsets, record.offset)
    if columns.wants_timestamps:
        write_i64_le(columns.timestamps, record.timestamp)
    if columns.wants_keys:
        if record.key is None:
            columns.keys.add_null()
        else:
            columns.keys.add(content, at, len(record.key), index)
    at += len(record.key or b"")
    if columns.wants_values:
        if record.value is None:
            columns.values.add_null()
        else:
            columns.values.add(content, at, len(record.value), index)
    return at + len(record.value or b"")
