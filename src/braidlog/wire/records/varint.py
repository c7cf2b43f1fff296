"""The numbers and byte strings of v2 records: zigzag varints, and lengths that may be null (hot: compiled by mypyc).

The same source runs uncompiled, where native integers are plain ones that never wrap: what could pass 64 bits is
masked or refused, so that both give the same results.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, write_i16_le
from mypy_extensions import i16, i64, u8

from braidlog.core.protocol_errors import InvalidRecordError

INT64_MAX: Final = 0x7FFFFFFFFFFFFFFF
INT64_MIN: Final = -0x8000000000000000
NULL_LENGTH: Final = -1


def read_varint(buffer: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """(value, position after it) of a zigzag varint of 32 bits."""
    value: i64 = 0
    shift: i64 = 0
    while True:
        if at >= end:
            raise InvalidRecordError("a record ends inside a number")
        byte: i64 = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise InvalidRecordError("a record holds a varint of more than 5 bytes")
    value &= 0xFFFFFFFF
    return (value >> 1) ^ -(value & 1), at


def read_varlong(buffer: bytes, at: i64, end: i64) -> tuple[i64, i64]:
    """(value, position after it) of a zigzag varint of 64 bits."""
    value: i64 = 0
    shift: i64 = 0
    while True:
        if at >= end:
            raise InvalidRecordError("a record ends inside a number")
        byte: i64 = buffer[at]
        at += 1
        if shift == 63:
            if byte >= 0x80:
                raise InvalidRecordError("a record holds a varint of more than 10 bytes")
            # Only one bit of the tenth byte is left.
            value |= (byte & 1) << 63
            break
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return ((value >> 1) & INT64_MAX) ^ -(value & 1), at


def skip_bytes(buffer: bytes, at: i64, end: i64) -> i64:
    """The position after a nullable byte string."""
    length, at = read_varint(buffer, at, end)
    if length > 0:
        if length > end - at:
            raise InvalidRecordError(f"a record field of {length} bytes does not fit in its record")
        at += length
    elif length < NULL_LENGTH:
        raise InvalidRecordError(f"a record field of {length} bytes is impossible")
    return at


def varint_size(value: i64) -> i64:
    """Bytes that `write_varint` takes for a value."""
    magnitude: i64 = value if value >= 0 else -1 - value
    size: i64 = 1
    # Zigzag spends one bit of the first byte on the sign.
    magnitude >>= 6
    while magnitude > 0:
        size += 1
        magnitude >>= 7
    return size


def write_varint(out: BytesWriter, value: i64) -> None:
    """The zigzag varint of a 64-bit value; a 32-bit value gets the bytes of Kafka's 32-bit form."""
    # Magnitude and sign apart, so that nothing passes 64 bits.
    magnitude: i64 = value
    byte: i64 = 0
    if value < 0:
        magnitude = -1 - value
        byte = 1
    byte |= (magnitude & 0x3F) << 1
    magnitude >>= 6
    while magnitude > 0:
        # As u8, or the compiled code would call a method on a boxed number.
        out.append(u8(byte | 0x80))
        byte = magnitude & 0x7F
        magnitude >>= 7
    out.append(u8(byte))


def nullable_size(length: i64) -> i64:
    """Bytes of a string of this length as a record holds it; -1: null."""
    if length < 0:
        return 1
    if length < 64:
        return 1 + length
    return varint_size(length) + length


def write_short_varint(out: BytesWriter, value: i64) -> None:
    """As `write_varint`, with the usual one or two bytes written at once, and the length of a null."""
    if value >= 0 and value < 64:
        out.append(u8(value << 1))
    elif value == -1:
        out.append(1)
    elif value >= 0 and value < 8192:
        write_i16_le(out, i16((value << 1 & 0x7F) | 0x80 | value >> 6 << 8))
    else:
        write_varint(out, value)
