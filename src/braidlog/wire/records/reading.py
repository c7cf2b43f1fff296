"""Records as objects, for everything but the broker's own append and fetch paths (hot: compiled by mypyc)."""

from __future__ import annotations

from librt.strings import read_i32_be
from mypy_extensions import i64

from braidlog.core.gil import yield_gil
from braidlog.core.protocol_errors import CorruptMessageError, InvalidRecordError
from braidlog.wire.records.batch import (
    CODEC_MASK,
    CODEC_NONE,
    HEADER_SIZE,
    NO_SEQUENCE,
    BatchHeader,
    iterate_headers,
    read_header,
    sequence_after,
)
from braidlog.wire.records.batch import check_crc as check_batch_crc
from braidlog.wire.records.compression import DEFAULT_LIMIT, decompress
from braidlog.wire.records.encoding import Header as Header
from braidlog.wire.records.scan import SMALLEST_RECORD
from braidlog.wire.records.varint import INT64_MAX, INT64_MIN, read_varint, read_varlong


class Record:
    """One record; `attributes` are the record's own, or for an old message that message's."""

    __slots__ = ("attributes", "headers", "key", "offset", "sequence", "timestamp", "value")

    def __init__(
        self,
        offset: int = 0,
        timestamp: int = -1,
        key: bytes | None = None,
        value: bytes | None = None,
        headers: tuple[Header, ...] = (),
        attributes: int = 0,
        sequence: int = -1,
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers
        self.attributes = attributes
        self.sequence = sequence

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return (
            self.offset == other.offset
            and self.timestamp == other.timestamp
            and self.key == other.key
            and self.value == other.value
            and self.headers == other.headers
            and self.attributes == other.attributes
            and self.sequence == other.sequence
        )

    def __hash__(self) -> int:
        return hash((self.offset, self.timestamp, self.key, self.value))

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, "
            f"value={self.value!r}, headers={self.headers!r})"
        )


def read_records(
    buffer: bytes,
    start: int = 0,
    end: int | None = None,
    *,
    check_crc: bool = True,
    limit: int = DEFAULT_LIMIT,
) -> list[Record]:
    """All records of the whole batches in `buffer[start:end]`, of any magic and codec."""
    records: list[Record] = []
    for header in iterate_headers(buffer, start, len(buffer) if end is None else end):
        records.extend(read_batch(buffer, header, check_crc=check_crc, limit=limit))
    return records


def read_batch(
    buffer: bytes, header: BatchHeader, *, check_crc: bool = True, limit: int = DEFAULT_LIMIT
) -> list[Record]:
    """The records of one batch, or of one old message with its wrapper unpacked."""
    if header.position + header.size > len(buffer):
        raise CorruptMessageError(f"a record batch of {header.size} bytes is cut short")
    if check_crc:
        check_batch_crc(buffer, header)
    if header.magic < 2:
        return _read_message(buffer, header, check_crc, limit)
    content, at, end = records_of(buffer, header, limit)
    return _read_v2(content, at, end, header)


def find_timestamp(buffer: bytes, header: BatchHeader, timestamp: int, start_offset: int) -> tuple[int, int] | None:
    """Timestamp and offset of a batch's first record, from `start_offset` on, that is not older than `timestamp`.

    Makes no objects of the others: there may be millions in a batch.
    """
    if header.magic < 2:
        for record in read_batch(buffer, header):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return record.timestamp, record.offset
        return None
    if header.position + header.size > len(buffer):
        raise CorruptMessageError(f"a record batch of {header.size} bytes is cut short")
    check_batch_crc(buffer, header)
    content, first, last = records_of(buffer, header, DEFAULT_LIMIT)
    at: i64 = first
    end: i64 = last
    index: i64 = 0
    count: i64 = header.count
    while index < count:
        length, at = read_varint(content, at, end)
        if length < SMALLEST_RECORD or length > end - at:
            raise InvalidRecordError(f"record {index} declares {length} bytes where {end - at} are left")
        record_end: i64 = at + length
        timestamp_delta, at = read_varlong(content, at + 1, record_end)
        offset_delta, at = read_varint(content, at, record_end)
        found = header.max_timestamp if header.is_log_append_time else header.base_timestamp + int(timestamp_delta)
        offset = header.base_offset + int(offset_delta)
        if found >= timestamp and offset >= start_offset:
            if found > INT64_MAX:
                raise InvalidRecordError(f"record {index} has an impossible timestamp")
            return found, offset
        at = record_end
        index += 1
    return None


def records_of(buffer: bytes, header: BatchHeader, limit: int) -> tuple[bytes, int, int]:
    """The records of a v2 batch, decompressed: the bytes, and where in these they begin and end."""
    at = header.position + HEADER_SIZE
    end = header.position + header.size
    if header.codec == CODEC_NONE or header.count == 0:
        return buffer, at, end
    content = decompress(header.codec, buffer, at, end, limit=limit)
    return content, 0, len(content)


def _read_v2(buffer: bytes, start: i64, end: i64, header: BatchHeader) -> list[Record]:
    records: list[Record] = []
    count: i64 = header.count
    if count < 0:
        raise InvalidRecordError(f"a record batch declares {count} records")
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    fixed_timestamp = header.is_log_append_time
    base_sequence = header.base_sequence
    at: i64 = start
    index: i64 = 0
    while index < count:
        length, at = read_varint(buffer, at, end)
        if length < SMALLEST_RECORD or length > end - at:
            raise InvalidRecordError(f"record {index} declares {length} bytes where {end - at} are left")
        record_end: i64 = at + length
        attributes = buffer[at]
        timestamp_delta, at = read_varlong(buffer, at + 1, record_end)
        offset_delta, at = read_varint(buffer, at, record_end)
        key, at = read_nullable(buffer, at, record_end)
        value, at = read_nullable(buffer, at, record_end)
        headers, at = read_headers(buffer, at, record_end)
        if at != record_end:
            raise InvalidRecordError(f"record {index} declares {record_end - at} bytes more than it has")
        timestamp = header.max_timestamp if fixed_timestamp else base_timestamp + int(timestamp_delta)
        if timestamp > INT64_MAX or timestamp < INT64_MIN:
            raise InvalidRecordError(f"record {index} has an impossible timestamp")
        sequence = NO_SEQUENCE
        if base_sequence != NO_SEQUENCE and offset_delta >= 0:
            sequence = sequence_after(base_sequence, int(offset_delta))
        records.append(Record(base_offset + int(offset_delta), timestamp, key, value, headers, attributes, sequence))
        index += 1
        if index & 0x7FF == 0:
            yield_gil()
    if at != end:
        raise InvalidRecordError(f"{end - at} bytes are left after the {count} records of the batch")
    return records


def read_nullable(buffer: bytes, at: i64, end: i64) -> tuple[bytes | None, i64]:
    """(byte string or None, position after it) of a varint-prefixed field."""
    length, at = read_varint(buffer, at, end)
    if length < 0:
        return None, at
    if length > end - at:
        raise InvalidRecordError(f"a record field of {length} bytes does not fit in its record")
    return buffer[at : at + length], at + length


def read_headers(buffer: bytes, at: i64, end: i64) -> tuple[tuple[Header, ...], i64]:
    """(headers, position after them) of a record."""
    count, at = read_varint(buffer, at, end)
    if count == 0:
        return (), at
    if count < 0 or count > end - at:
        raise InvalidRecordError(f"a record of {end - at} more bytes declares {count} headers")
    headers: list[Header] = []
    while count > 0:
        name, at = read_nullable(buffer, at, end)
        if name is None:
            raise InvalidRecordError("a record has a header without a key")
        value, at = read_nullable(buffer, at, end)
        headers.append((name.decode("utf-8", "replace"), value))
        count -= 1
    return tuple(headers), at


def message_fields(buffer: bytes, header: BatchHeader) -> tuple[bytes | None, bytes | None]:
    """Key and value of an old message, which must fill it exactly."""
    at: i64 = header.position + (18 if header.magic == 0 else 26)
    end: i64 = header.position + header.size
    fields: list[bytes | None] = []
    for name in ("key", "value"):
        if end - at < 4:
            raise CorruptMessageError(f"a message ends before its {name}")
        length: i64 = i64(read_i32_be(buffer, at))
        at += 4
        if length < 0:
            fields.append(None)
            continue
        if length > end - at:
            raise CorruptMessageError(f"the {name} of a message does not fit in it")
        fields.append(buffer[at : at + length])
        at += length
    if at != end:
        raise CorruptMessageError(f"a message is {end - at} bytes longer than its key and value")
    return fields[0], fields[1]


def _read_message(buffer: bytes, header: BatchHeader, check_crc: bool, limit: int) -> list[Record]:
    key, value = message_fields(buffer, header)
    if header.codec == CODEC_NONE:
        return [Record(header.base_offset, header.base_timestamp, key, value, (), header.attributes)]
    if value is None:
        raise InvalidRecordError("a compressed message has no value to decompress")
    inner = decompress(header.codec, value, 0, len(value), limit=limit, magic=header.magic)
    records = _read_inner(inner, header, check_crc)
    # Format 1 counts inner offsets from 0; the wrapper carries the absolute offset of the last one.
    if header.magic == 1:
        shift = header.base_offset - records[-1].offset
        for record in records:
            offset = record.offset + shift
            if not INT64_MIN <= offset <= INT64_MAX:
                raise InvalidRecordError(f"a message inside a compressed one has the impossible offset {offset}")
            record.offset = offset
    return records


def _read_inner(inner: bytes, wrapper: BatchHeader, check_crc: bool) -> list[Record]:
    records: list[Record] = []
    at = 0
    while at < len(inner):
        header = read_header(inner, at, len(inner))
        if header.magic != wrapper.magic:
            raise InvalidRecordError(
                f"a message of format {header.magic} inside a compressed one of format {wrapper.magic}"
            )
        if header.attributes & CODEC_MASK != CODEC_NONE:
            raise InvalidRecordError("a compressed message inside a compressed one")
        if at + header.size > len(inner):
            raise CorruptMessageError("a compressed message's last inner message is cut short")
        if check_crc:
            check_batch_crc(inner, header)
        key, value = message_fields(inner, header)
        timestamp = wrapper.base_timestamp if wrapper.is_log_append_time else header.base_timestamp
        records.append(Record(header.base_offset, timestamp, key, value, (), wrapper.attributes & ~CODEC_MASK))
        at += header.size
        if len(records) & 0x7FF == 0:
            yield_gil()
    if not records:
        raise InvalidRecordError("a compressed message without inner messages")
    return records
