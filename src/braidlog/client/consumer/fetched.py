"""What one fetch brought of one partition, turned into records as they are asked for (hot: compiled by mypyc).

Batches stay as they came, and compressed, until a program's thread asks for their records; then one loop makes the
records, with no other object between. The same source runs uncompiled, with the same results.
"""

from __future__ import annotations

from typing import Final

from librt.strings import read_i32_be
from mypy_extensions import i32, i64

from braidlog.client.consumer.partition import PartitionState
from braidlog.client.consumer.record import CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE, ConsumerRecord, Headers
from braidlog.client.errors import PoisonRecordError
from braidlog.client.visibility import AbortedRange
from braidlog.core.protocol_errors import CorruptMessageError, InvalidRecordError, ProtocolError
from braidlog.wire.records.batch import (
    CODEC_NONE,
    CONTROL,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_OVERHEAD,
    TRANSACTIONAL,
    BatchHeader,
    check_crc,
    iterate_headers,
    read_header,
)
from braidlog.wire.records.batch import LOG_APPEND_TIME as LOG_APPEND_TIME_BIT
from braidlog.wire.records.builder import MARKER_ABORT, marker_type
from braidlog.wire.records.compression import decompress
from braidlog.wire.records.reading import read_batch, read_nullable
from braidlog.wire.records.scan import (
    INT64_MAX,
    INT64_MIN,
    NULL_LENGTH,
    SMALLEST_RECORD,
    read_varint,
    read_varlong,
)

# Most batches that a slice is cut into for `take_raw`; nobody fetches as many.
_NOTHING: Final = b""


def end_of_batches(data: bytes, start: int, end: int, position: int) -> int:
    """The offset after the last whole batch of `data[start:end]`; `position` when there is none."""
    at: i64 = start
    stop: i64 = end
    last: i64 = -1
    while stop - at >= LOG_OVERHEAD:
        size: i64 = i64(read_i32_be(data, at + LENGTH_AT)) + LOG_OVERHEAD
        if size < LOG_OVERHEAD or size > stop - at:
            break
        last = at
        at += size
    if last < 0:
        return position
    try:
        return max(position, read_header(data, int(last), end).next_offset)
    except CorruptMessageError:
        # Whoever reads the records will be told; fetching stops here until then.
        return position


class FetchedSlice:
    """Whole batches `data[start:end]` of one partition, read from `position` on.

    `position` moves with `read`: it is the offset of the next record, also past records that nobody may see.
    """

    __slots__ = (
        "_at",
        "_base_offset",
        "_base_timestamp",
        "_buffer",
        "_check_crcs",
        "_coming_aborts",
        "_end",
        "_epoch",
        "_fixed_timestamp",
        "_left",
        "_next_offset",
        "_open_aborts",
        "_timestamp_type",
        "aborted",
        "batch_at",
        "data",
        "end",
        "high_watermark",
        "is_used_up",
        "last_stable",
        "log_start",
        "position",
        "position_epoch",
        "problem",
        "start",
        "state",
        "version",
    )

    def __init__(
        self,
        state: PartitionState,
        data: bytes,
        start: int,
        end: int,
        position: int,
        aborted: list[AbortedRange],
        high_watermark: int = -1,
        last_stable: int = -1,
        log_start: int = -1,
        check_crcs: bool = True,
    ) -> None:
        self.state = state
        # Data of before a seek does not count.
        self.version: i64 = state.version
        self.data = data
        self.start = start
        self.end: i64 = end
        self.position: i64 = position
        # Leader epoch of the last record that was read, -1 before the first.
        self.position_epoch: i64 = -1
        self.aborted = aborted
        self.high_watermark = high_watermark
        self.last_stable = last_stable
        self.log_start = log_start
        self.is_used_up: bool = False
        # Why reading cannot go on; told again for as long as the program does not seek.
        self.problem: PoisonRecordError | None = None
        # Where the next batch starts.
        self.batch_at: i64 = start
        self._check_crcs = check_crcs
        self._coming_aborts: list[AbortedRange] = sorted(aborted, key=_first_offset, reverse=True)
        self._open_aborts: set[int] = set()
        # The batch that is being read: its records, decompressed, from `_at` to `_end`, `_left` of them.
        self._buffer: bytes = _NOTHING
        self._at: i64 = 0
        self._end: i64 = 0
        self._left: i64 = 0
        self._base_offset: i64 = 0
        self._base_timestamp: i64 = 0
        # Of a batch whose records all have the time of their append.
        self._fixed_timestamp: bool = False
        self._timestamp_type: i32 = CREATE_TIME
        self._epoch: i32 = -1
        self._next_offset: i64 = position

    @property
    def size(self) -> int:
        return int(self.end) - self.start

    def read(self, into: list[ConsumerRecord], most: i64) -> None:
        """Append up to so many records; `is_used_up` when there are no more.

        Raises PoisonRecordError, unless records before the broken one could be appended.
        """
        if self.problem is not None:
            raise self.problem
        wanted: i64 = len(into) + most
        before = len(into)
        try:
            while i64(len(into)) < wanted:
                if self._left > 0:
                    self._read_some(into, wanted - len(into))
                elif not self._begin_batch(into):
                    self.is_used_up = True
                    return
            if self._left == 0 and self.end - self.batch_at < LOG_OVERHEAD:
                self.is_used_up = True
        except ProtocolError as problem:
            self._broke(problem)
            if len(into) == before:
                raise self.problem_found() from problem

    def problem_found(self) -> PoisonRecordError:
        assert self.problem is not None
        return self.problem

    def _broke(self, problem: ProtocolError) -> None:
        resume_at = self._next_offset if self._next_offset > self.position else self.position + 1
        partition = self.state.topic_partition
        self.problem = PoisonRecordError(
            f"{partition} cannot be read at offset {self.position}: {problem}; "
            f"seek past it (offset {resume_at} is the next that may be whole) or have the partition repaired",
            partition,
            int(self.position),
            int(resume_at),
        )

    def _begin_batch(self, into: list[ConsumerRecord]) -> bool:
        """Go to the next batch that may be seen; False after the last. Old messages are appended at once."""
        data = self.data
        while self.end - self.batch_at >= LOG_OVERHEAD:
            at = self.batch_at
            size: i64 = i64(read_i32_be(data, at + LENGTH_AT)) + LOG_OVERHEAD
            if size > self.end - at:
                return False
            self._next_offset = self.position
            header = read_header(data, int(at), int(self.end))
            next_offset: i64 = header.next_offset
            self._next_offset = next_offset
            if self._check_crcs:
                check_crc(data, header)
            if next_offset <= self.position or not self._is_visible(header):
                self._pass(header, size)
                continue
            if header.magic < 2:
                self._read_old(header, into)
                self._pass(header, size)
                return True
            if header.count <= 0:
                if header.count < 0:
                    raise InvalidRecordError(f"a record batch declares {header.count} records")
                self._pass(header, size)
                continue
            self._open(header)
            self.batch_at = at + size
            return True
        return False

    def _pass(self, header: BatchHeader, size: i64) -> None:
        self.batch_at += size
        next_offset: i64 = header.next_offset
        if next_offset > self.position:
            self.position = next_offset
            self.position_epoch = header.leader_epoch

    def _is_visible(self, header: BatchHeader) -> bool:
        coming = self._coming_aborts
        while coming and coming[-1].first_offset <= header.last_offset:
            self._open_aborts.add(coming.pop().producer_id)
        attributes = header.attributes
        if attributes & CONTROL != 0:
            if self._open_aborts:
                for marker in read_batch(self.data, header, check_crc=False):
                    if marker_type(marker) == MARKER_ABORT:
                        self._open_aborts.discard(header.producer_id)
            return False
        return not (attributes & TRANSACTIONAL != 0 and header.producer_id in self._open_aborts)

    def _open(self, header: BatchHeader) -> None:
        at = header.position + HEADER_SIZE
        end = header.position + header.size
        if header.codec != CODEC_NONE:
            self._buffer = decompress(header.codec, self.data, at, end)
            self._at = 0
            self._end = len(self._buffer)
        else:
            self._buffer = self.data
            self._at = at
            self._end = end
        self._left = header.count
        self._base_offset = header.base_offset
        self._fixed_timestamp = header.attributes & LOG_APPEND_TIME_BIT != 0
        self._base_timestamp = header.max_timestamp if self._fixed_timestamp else header.base_timestamp
        self._timestamp_type = LOG_APPEND_TIME if self._fixed_timestamp else CREATE_TIME
        self._epoch = header.leader_epoch

    def _read_old(self, header: BatchHeader, into: list[ConsumerRecord]) -> None:
        """Messages of the formats before record batches: rare, so by way of `Record`; all of a wrapper at once."""
        state = self.state
        kind: i32 = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
        if header.magic == 0:
            kind = NO_TIMESTAMP_TYPE
        for record in read_batch(self.data, header, check_crc=False):
            if record.offset >= self.position:
                into.append(
                    ConsumerRecord(
                        state.topic,
                        state.partition,
                        record.offset,
                        record.timestamp,
                        record.key,
                        record.value,
                        record.headers,
                        kind,
                        -1,
                    )
                )

    def _read_some(self, into: list[ConsumerRecord], most: i64) -> None:
        """Records of the open batch; those before the position are passed over."""
        buffer = self._buffer
        at: i64 = self._at
        end: i64 = self._end
        left: i64 = self._left
        base_offset: i64 = self._base_offset
        base_timestamp: i64 = self._base_timestamp
        fixed = self._fixed_timestamp
        # Deltas that keep base_timestamp + delta within 64 bits.
        least_delta: i64 = INT64_MIN - base_timestamp if base_timestamp < 0 else INT64_MIN
        most_delta: i64 = INT64_MAX - base_timestamp if base_timestamp > 0 else INT64_MAX
        kind: i32 = self._timestamp_type
        epoch: i32 = self._epoch
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
        self._left = left
        self.position_epoch = i64(epoch)
        if left == 0:
            if at != end:
                raise InvalidRecordError(f"{end - at} bytes are left after the records of the batch")
            self._buffer = _NOTHING
            if self._next_offset > position:
                self.position = self._next_offset

    def rewind(self, offset: int) -> None:
        """Read again from a record that was read before."""
        self.batch_at = self.start
        self.position = offset
        self.is_used_up = False
        self._coming_aborts = sorted(self.aborted, key=_first_offset, reverse=True)
        self._open_aborts = set()
        self._left = 0
        self._buffer = _NOTHING

    def rest(self) -> tuple[int, int]:
        """`(start, end)` of the whole batches that are not read to their end; what `take_raw` hands out."""
        start = int(self.batch_at)
        if self._left > 0:
            # The open batch started before.
            for header in iterate_headers(self.data, self.start, int(self.end)):
                if header.end == start:
                    return header.position, int(self.end)
        return start, int(self.end)


def _first_offset(aborted: AbortedRange) -> int:
    return aborted.first_offset


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
