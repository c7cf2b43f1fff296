"""The walk over the records of a v2 batch that checks every one of them (hot: compiled by mypyc).

One record (all varints are zigzag; `length` counts what follows it):

     +--------+------------+-----------+--------+---------+-----+--------+-------+--------+---------+
     | length | attributes | timestamp | offset | key     | key | value  | value | header | headers |
     | varint | 1 byte, 0  | delta     | delta  | length  |     | length |       | count  |         |
     |        |            | varlong   | varint | varint  |     | varint |       | varint |         |
     +--------+------------+-----------+--------+---------+-----+--------+-------+--------+---------+
     header: key length varint, key, value length varint, value; a length of -1 means null

Other negative lengths are refused: Java's reader takes them for null, but librdkafka's would stop there for ever.

The same source runs uncompiled, where native integers are plain ones that never wrap: what could pass 64 bits is
masked or refused, so that both give the same results.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i64

from braidlog.core.gil import yield_gil
from braidlog.core.protocol_errors import InvalidRecordError
from braidlog.wire.records.varint import INT64_MAX, INT64_MIN, NULL_LENGTH, read_varint, read_varlong, skip_bytes

# attributes, two deltas, two lengths and the header count take at least one byte each
SMALLEST_RECORD: Final = 6

# A hostile batch may hold millions of bad records; more than these are not reported, and memory stays bounded.
MOST_FAULTS: Final = 10_000

OUT_OF_RANGE: Final = 1
KEYLESS: Final = 2


class RecordScan:
    """What to check records against, and what the walk found.

    `faults` holds (index of the record, what is wrong, its timestamp) for what is reported to a client record by
    record, up to MOST_FAULTS of them; a batch whose structure is broken raises instead.
    """

    __slots__ = (
        "faults",
        "highest",
        "index_of_max",
        "keys_required",
        "lowest",
        "max_timestamp",
        "offsets_consecutive",
    )

    def __init__(self, lowest: int, highest: int, keys_required: bool, offsets_consecutive: bool = True) -> None:
        # Timestamps outside of [lowest, highest] are faults, except -1: "no timestamp".
        self.lowest: i64 = lowest
        self.highest: i64 = highest
        self.keys_required = keys_required
        self.offsets_consecutive = offsets_consecutive
        self.max_timestamp: i64 = -1
        self.index_of_max: i64 = -1
        self.faults: list[tuple[int, int, int]] = []


def skip_headers(buffer: bytes, at: i64, end: i64) -> i64:
    """The position after a record's headers, whose keys must not be null."""
    count, at = read_varint(buffer, at, end)
    if count < 0 or count > end - at:
        raise InvalidRecordError(f"a record of {end - at} more bytes declares {count} headers")
    while count > 0:
        length, at = read_varint(buffer, at, end)
        if length < 0 or length > end - at:
            raise InvalidRecordError(f"a header key of {length} bytes is impossible")
        at = skip_bytes(buffer, at + length, end)
        count -= 1
    return at


def scan_records(buffer: bytes, start: i64, end: i64, count: i64, base_timestamp: i64, scan: RecordScan) -> None:
    """Walk `count` records in `buffer[start:end]`, which they must fill exactly.

    Raises InvalidRecordError when the structure is broken; leaves everything else in `scan`.
    """
    at: i64 = start
    lowest: i64 = scan.lowest
    highest: i64 = scan.highest
    # Deltas that keep base_timestamp + delta within 64 bits.
    least_delta: i64 = INT64_MIN - base_timestamp if base_timestamp < 0 else INT64_MIN
    most_delta: i64 = INT64_MAX - base_timestamp if base_timestamp > 0 else INT64_MAX
    keys_required = scan.keys_required
    consecutive = scan.offsets_consecutive
    previous: i64 = -1
    max_timestamp: i64 = -1
    index_of_max: i64 = -1
    index: i64 = 0
    if end > len(buffer):
        raise InvalidRecordError("a record batch is cut short")
    while index < count:
        if end - at < SMALLEST_RECORD + 1:
            raise InvalidRecordError(f"the batch declares {count} records but ends after {index}")
        byte: i64 = buffer[at]
        length: i64
        delta: i64
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
        byte = buffer[at + 1]
        if byte < 0x80:
            delta = (byte >> 1) ^ -(byte & 1)
            at += 2
        else:
            byte = (byte & 0x7F) | i64(buffer[at + 2]) << 7
            if byte < 0x4000:
                delta = (byte >> 1) ^ -(byte & 1)
                at += 3
            else:
                delta, at = read_varlong(buffer, at + 1, record_end)
        if delta < least_delta or delta > most_delta:
            raise InvalidRecordError(f"record {index} has an impossible timestamp")
        timestamp: i64 = base_timestamp + delta
        if timestamp > max_timestamp:
            max_timestamp = timestamp
            index_of_max = index
        if (timestamp < lowest or timestamp > highest) and timestamp != -1 and len(scan.faults) < MOST_FAULTS:
            scan.faults.append((index, OUT_OF_RANGE, timestamp))

        if record_end - at < 4:
            raise InvalidRecordError(f"record {index} is cut short")
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
        if delta != index and (consecutive or delta <= previous):
            raise InvalidRecordError(f"record {index} of the batch has offset delta {delta}")
        previous = delta

        if at >= record_end:
            raise InvalidRecordError(f"record {index} is cut short")
        byte = buffer[at]
        if byte < 0x80:
            length = (byte >> 1) ^ -(byte & 1)
            at += 1
        else:
            length, at = read_varint(buffer, at, record_end)
        if length < 0:
            if length != NULL_LENGTH:
                raise InvalidRecordError(f"the key of record {index} has a length of {length}")
            if keys_required and len(scan.faults) < MOST_FAULTS:
                scan.faults.append((index, KEYLESS, timestamp))
        else:
            if length > record_end - at:
                raise InvalidRecordError(f"the key of record {index} does not fit in its record")
            at += length

        if record_end - at < 2:
            raise InvalidRecordError(f"record {index} is cut short")
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
                length, at = read_varint(buffer, at, record_end)
        if length > 0:
            if length > record_end - at:
                raise InvalidRecordError(f"the value of record {index} does not fit in its record")
            at += length
        elif length < NULL_LENGTH:
            raise InvalidRecordError(f"the value of record {index} has a length of {length}")

        if at >= record_end:
            raise InvalidRecordError(f"record {index} is cut short")
        byte = buffer[at]
        if byte == 0:
            at += 1
        else:
            at = skip_headers(buffer, at, record_end)
        if at != record_end:
            raise InvalidRecordError(f"record {index} declares {record_end - at} bytes more than it has")
        index += 1
        if index & 0xFFFF == 0:
            # Some 0.6 ms of work.
            yield_gil()
    if at != end:
        raise InvalidRecordError(f"{end - at} bytes are left after the {count} records of the batch")
    scan.max_timestamp = max_timestamp
    scan.index_of_max = index_of_max
