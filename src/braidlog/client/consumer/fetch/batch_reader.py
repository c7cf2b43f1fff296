"""The one loop that makes a program's records out of a batch (hot: compiled by mypyc).

The layout of a record is drawn in `wire.records.scan`. No object is made between the batch's bytes and the record, and
the numbers that are nearly always short are read in place. The same source runs uncompiled, with the same results.
"""

from __future__ import annotations

from typing import Final

from mypy_extensions import i32, i64

from braidlog.client.consumer.partition_state import PartitionState
from braidlog.client.consumer.record import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord, Headers
from braidlog.core.protocol_errors import CorruptMessageError, InvalidRecordError
from braidlog.wire.records.batch import CODEC_NONE, HEADER_SIZE, BatchHeader
from braidlog.wire.records.batch import LOG_APPEND_TIME as LOG_APPEND_TIME_BIT
from braidlog.wire.records.compression import decompress
from braidlog.wire.records.reading import read_nullable
from braidlog.wire.records.scan import SMALLEST_RECORD
from braidlog.wire.records.varint import INT64_MAX, INT64_MIN, NULL_LENGTH, read_varint, read_varlong

_NOTHING: Final = b""


class BatchReader:
    """A batch of which `left` records are still to be read; `position` is the offset of the next one."""

    __slots__ = (
        "_at",
        "_base_offset",
        "_base_timestamp",
        "_buffer",
        "_end",
        "_fixed_timestamp",
        "_timestamp_type",
        "epoch",
        "left",
        "next_offset",
        "position",
        "state",
    )

    def __init__(self, state: PartitionState) -> None:
        self.state = state
        self.left: i64 = 0
        self.position: i64 = 0
        # The offset after the batch, which may lie past its last record: compaction takes records out.
        self.next_offset: i64 = 0
        self.epoch: i32 = -1
        # Its records, decompressed, from `_at` to `_end`.
        self._buffer: bytes = _NOTHING
        self._at: i64 = 0
        self._end: i64 = 0
        self._base_offset: i64 = 0
        self._base_timestamp: i64 = 0
        # Of a batch whose records all have the time of their append.
        self._fixed_timestamp: bool = False
        self._timestamp_type: i32 = CREATE_TIME

    def open(self, data: bytes, header: BatchHeader, position: i64) -> None:
        at = header.position + HEADER_SIZE
        end = header.position + header.size
        if header.codec != CODEC_NONE:
            self._buffer = decompress(header.codec, data, at, end)
            self._at = 0
            self._end = len(self._buffer)
        else:
            self._buffer = data
            self._at = at
            self._end = end
        self.position = position
        self.left = header.count
        self.next_offset = header.next_offset
        self._base_offset = header.base_offset
        self._fixed_timestamp = header.attributes & LOG_APPEND_TIME_BIT != 0
        self._base_timestamp = header.max_timestamp if self._fixed_timestamp else header.base_timestamp
        self._timestamp_type = LOG_APPEND_TIME if self._fixed_timestamp else CREATE_TIME
        self.epoch = header.leader_epoch

    def close(self) -> None:
        self.left = 0
        self._buffer = _NOTHING

    def read(self, into: list[ConsumerRecord], most: i64) -> None:
        """Append so many records at most; those before the position are passed over."""
        buffer = self._buffer
        at: i64 = self._at
        end: i64 = self._end
        left: i64 = self.left
        base_offset: i64 = self._base_offset
        base_timestamp: i64 = self._base_timestamp
        fixed = self._fixed_timestamp
        # Deltas that keep base_timestamp + delta within 64 bits.
        least_delta: i64 = INT64_MIN - base_timestamp if base_timestamp < 0 else INT64_MIN
        most_delta: i64 = INT64_MAX - base_timestamp if base_timestamp > 0 else INT64_MAX
        kind: i32 = self._timestamp_type
        epoch: i32 = self.epoch
        state = self.state
        topic = state.topic
        partition: i32 = state.partition
        position: i64 = self.position
        length: i64
        delta: i64
        offset: i64
        byte: i64
        key: bytes | None
        value: bytes | None
        headers: Headers
        if end > i64(len(buffer)):
            raise CorruptMessageError("a record batch is cut short")
        while left > 0 and most > 0:
            if end - at < SMALLEST_RECORD + 1:
                raise InvalidRecordError(f"the batch ends {left} records too early")
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
                raise InvalidRecordError(f"a record declares {length} bytes where {end - at} are left")
            record_end: i64 = at + length

            # attributes: one byte that no format version uses yet
            byte = buffer[at + 1]
            if byte < 0x80:
                delta = (byte >> 1) ^ -(byte & 1)
                at += 2
            else:
                delta, at = read_varlong(buffer, at + 1, record_end)
            if fixed:
                delta = 0
            elif delta < least_delta or delta > most_delta:
                raise InvalidRecordError("a record has an impossible timestamp")
            timestamp: i64 = base_timestamp + delta

            if record_end - at < 4:
                raise InvalidRecordError("a record is cut short")
            byte = buffer[at]
            if byte < 0x80:
                offset = (byte >> 1) ^ -(byte & 1)
                at += 1
            else:
                byte = (byte & 0x7F) | i64(buffer[at + 1]) << 7
                if byte < 0x4000:
                    offset = (byte >> 1) ^ -(byte & 1)
                    at += 2
                else:
                    offset, at = read_varint(buffer, at, record_end)
            offset += base_offset
            left -= 1
            if offset < position:
                # Before where we were asked to start; compaction leaves gaps, but never goes back.
                at = record_end
                continue

            if at >= record_end:
                raise InvalidRecordError("a record is cut short")
            byte = buffer[at]
            if byte < 0x80:
                length = (byte >> 1) ^ -(byte & 1)
                at += 1
            else:
                length, at = read_varint(buffer, at, record_end)
            if length >= 0:
                if length > record_end - at:
                    raise InvalidRecordError("a record's key does not fit in it")
                key = buffer[at : at + length]
                at += length
            elif length == NULL_LENGTH:
                key = None
            else:
                raise InvalidRecordError(f"a record's key has a length of {length}")

            if record_end - at < 2:
                raise InvalidRecordError("a record is cut short")
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
            if length >= 0:
                if length > record_end - at:
                    raise InvalidRecordError("a record's value does not fit in it")
                value = buffer[at : at + length]
                at += length
            elif length == NULL_LENGTH:
                value = None
            else:
                raise InvalidRecordError(f"a record's value has a length of {length}")

            if at >= record_end:
                raise InvalidRecordError("a record is cut short")
            if buffer[at] == 0:
                at += 1
                headers = ()
            else:
                headers, at = _read_headers(buffer, at, record_end)
            if at != record_end:
                raise InvalidRecordError(f"a record declares {record_end - at} bytes more than it has")
            into.append(ConsumerRecord(topic, partition, offset, timestamp, key, value, headers, kind, epoch))
            position = offset + 1
            # So that a record that breaks later finds the position of the last one that did not.
            self.position = position
            most -= 1
        self._at = at
        self.left = left
        if left == 0:
            if at != end:
                raise InvalidRecordError(f"{end - at} bytes are left after the records of the batch")
            self._buffer = _NOTHING
            if self.next_offset > position:
                self.position = self.next_offset


def _read_headers(buffer: bytes, at: i64, end: i64) -> tuple[Headers, i64]:
    count, at = read_varint(buffer, at, end)
    if count < 0 or count > end - at:
        raise InvalidRecordError(f"a record of {end - at} more bytes declares {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    while count > 0:
        name, at = read_nullable(buffer, at, end)
        if name is None:
            raise InvalidRecordError("a record has a header without a key")
        value, at = read_nullable(buffer, at, end)
        headers.append((name.decode("utf-8", "replace"), value))
        count -= 1
    return tuple(headers), at
