"""Writing records: varints, v2 records, batch headers and old messages (hot: compiled by mypyc)."""

from __future__ import annotations

import zlib
from typing import Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from braidlog.wire.records.batch import HEADER_SIZE, LOG_OVERHEAD
from braidlog.wire.records.checksum import crc32c
from braidlog.wire.records.varint import NULL_LENGTH, nullable_size, varint_size, write_varint

Header = tuple[str, bytes | None]

# A record without headers says that it has 0 of them.
NO_HEADERS: Final = b"\x00"


def write_nullable(out: BytesWriter, data: bytes | None) -> None:
    if data is None:
        out.append(1)
    else:
        write_varint(out, len(data))
        out.write(data)


def _nullable_size(data: bytes | None) -> i64:
    return nullable_size(NULL_LENGTH if data is None else len(data))


def write_record(
    out: BytesWriter,
    attributes: int,
    timestamp_delta: i64,
    offset_delta: i64,
    key: bytes | None,
    value: bytes | None,
    headers: tuple[Header, ...],
) -> None:
    """One v2 record, its length first."""
    encoded = encode_headers(headers) if headers else NO_HEADERS
    write_record_parts(out, attributes, timestamp_delta, offset_delta, key, value, encoded)


def write_record_parts(
    out: BytesWriter,
    attributes: i64,
    timestamp_delta: i64,
    offset_delta: i64,
    key: bytes | None,
    value: bytes | None,
    headers: bytes,
) -> None:
    """One v2 record whose headers are encoded already."""
    size: i64 = 1 + varint_size(timestamp_delta) + varint_size(offset_delta)
    size += _nullable_size(key) + _nullable_size(value)
    write_varint(out, size + len(headers))
    out.append(attributes)
    write_varint(out, timestamp_delta)
    write_varint(out, offset_delta)
    write_nullable(out, key)
    write_nullable(out, value)
    out.write(headers)


def encode_headers(headers: tuple[Header, ...]) -> bytes:
    """Their number, then name and value of each, as they end a record."""
    out = BytesWriter()
    write_varint(out, len(headers))
    for name, value in headers:
        write_nullable(out, name.encode())
        write_nullable(out, value)
    return out.getvalue()


def encode_header(
    body: bytes | memoryview,
    base_offset: int,
    leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    count: int,
) -> bytes:
    """The 61 bytes before `body` (the records as they are stored), checksum included."""
    checked = BytesWriter()
    write_i16_be(checked, attributes)
    write_i32_be(checked, last_offset_delta)
    write_i64_be(checked, base_timestamp)
    write_i64_be(checked, max_timestamp)
    write_i64_be(checked, producer_id)
    write_i16_be(checked, producer_epoch)
    write_i32_be(checked, base_sequence)
    write_i32_be(checked, count)
    tail = checked.getvalue()
    out = BytesWriter()
    write_i64_be(out, base_offset)
    write_i32_be(out, HEADER_SIZE - LOG_OVERHEAD + len(body))
    write_i32_be(out, leader_epoch)
    out.append(2)
    write_u32(out, crc32c(body, crc32c(tail, 0)))
    out.write(tail)
    return out.getvalue()


def write_u32(out: BytesWriter, value: i64) -> None:
    """An unsigned 32-bit number, as checksums are."""
    signed: i64 = value if value <= 0x7FFFFFFF else value - 0x100000000
    write_i32_be(out, i32(signed))


def write_message(
    out: BytesWriter,
    offset: int,
    magic: int,
    attributes: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
) -> None:
    """One message of format 0 (which has no timestamp) or 1."""
    checked = BytesWriter()
    checked.append(magic)
    checked.append(attributes)
    if magic == 1:
        write_i64_be(checked, timestamp)
    for data in (key, value):
        if data is None:
            write_i32_be(checked, -1)
        else:
            write_i32_be(checked, len(data))
            checked.write(data)
    content = checked.getvalue()
    write_i64_be(out, offset)
    write_i32_be(out, len(content) + 4)
    write_u32(out, zlib.crc32(content))
    out.write(content)
