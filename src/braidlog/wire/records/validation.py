"""What a broker checks and assigns before records enter a log (hot: compiled by mypyc).

The rules are those of Kafka 3.9: a client sends one v2 batch per partition or, before Produce v3, old messages; they
are stored as one v2 batch, or as messages where the topic has an old format. Every record is parsed; offsets and the
leader epoch are assigned by replacing the first 16 bytes, which no checksum covers, so that the plain path copies
nothing of the body.
"""

from __future__ import annotations

from typing import Final

from librt.strings import BytesWriter, read_i32_be, write_i32_be, write_i64_be
from mypy_extensions import i32, i64

from braidlog.core.gil import yield_gil
from braidlog.core.protocol_errors import (
    CorruptMessageError,
    InvalidRecordError,
    MessageTooLargeError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from braidlog.core.slices import ByteSlice
from braidlog.wire.records.append_policy import AppendPolicy, ValidatedRecords, check_size
from braidlog.wire.records.batch import (
    CODEC_MASK,
    CODEC_NONE,
    CODEC_ZSTD,
    HEADER_SIZE,
    LENGTH_AT,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MESSAGE_V0_SIZE,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    BatchHeader,
    check_crc,
    iterate_headers,
    read_header,
)
from braidlog.wire.records.compression import compress, decompress, most_decompressed
from braidlog.wire.records.conversion import as_message_set, convert_messages, most_to_convert, move_messages
from braidlog.wire.records.encoding import encode_header
from braidlog.wire.records.reading import read_records
from braidlog.wire.records.record_errors import (
    PRODUCERS_LOG_APPEND_TIME,
    WITHOUT_KEY,
    UnfitCodecError,
    UnfitRecordsError,
    out_of_range,
    rejection,
)
from braidlog.wire.records.scan import KEYLESS, MOST_FAULTS, RecordScan, scan_records
from braidlog.wire.records.varint import INT64_MAX, INT64_MIN

# Who appends: clients get every check, our coordinators may write control batches and several at once,
# and a follower stores what its leader already checked, offsets and epochs untouched.
ORIGIN_CLIENT: Final = 0
ORIGIN_COORDINATOR: Final = 1
ORIGIN_REPLICATION: Final = 2

LATEST_PRODUCE_VERSION: Final = 12
_FIRST_VERSION_WITH_BATCHES: Final = 3
_FIRST_VERSION_WITH_ZSTD: Final = 7

# The low byte of a batch's attributes.
_ATTRIBUTES_AT: Final = 22
# Beside unpacking, per byte: an object of every message of the old formats; compressing.
_WORK_OF_OLD_FORMAT: Final = 32
_WORK_OF_COMPRESSION: Final = 8
# The smallest old message takes 26 bytes, and 7 as a record of a batch.
_MOST_OLD_RATIO: Final = 4


def validate_for_append(
    records: ByteSlice,
    *,
    first_offset: int,
    leader_epoch: int,
    now_ms: int,
    policy: AppendPolicy,
    origin: int = ORIGIN_CLIENT,
    produce_version: int = LATEST_PRODUCE_VERSION,
    most_bytes: int = INT64_MAX,
) -> ValidatedRecords:
    """Check every record as Kafka 3.9 does, give the batches offsets from `first_offset` on and the epoch.

    Raises CorruptMessageError, InvalidRecordError, InvalidTimestampError, MessageTooLargeError or
    UnsupportedCompressionTypeError; `rejection.record_errors_of(error)` lists the records at fault. With
    ORIGIN_REPLICATION offsets and epochs stay as they are and must increase. `most_bytes` bounds what may be unpacked
    beside the policy's own bound.
    """
    buffer = records.buffer
    if origin == ORIGIN_CLIENT:
        _check_old_set(records, policy)
    headers = iterate_headers(buffer, records.start, records.end)
    if not headers:
        raise UnfitRecordsError("an append must hold at least one whole record batch")
    if origin == ORIGIN_REPLICATION:
        return _accept_replicated(buffer, headers, first_offset)
    if origin == ORIGIN_CLIENT:
        _check_request(headers, produce_version)
    for index, header in enumerate(headers):
        if index & 0x7FF == 0x7FF:
            yield_gil()
        check_size(header.size, policy)
        check_crc(buffer, header)
        if header.codec > CODEC_ZSTD:
            raise UnsupportedCompressionTypeError(f"unknown compression codec {header.codec}")
    if headers[0].magic < 2:
        return convert_messages(buffer, headers, first_offset, leader_epoch, now_ms, policy, most_bytes)
    if policy.magic < 2:
        return _convert_batches(buffer, headers, first_offset, now_ms, policy, origin, most_bytes)
    validated = ValidatedRecords(first_offset)
    for header in headers:
        if header.magic != 2:
            raise InvalidRecordError(f"a message of format {header.magic} among record batches")
        _check_batch(header, origin)
        _append_batch(buffer, header, leader_epoch, now_ms, policy, validated, most_bytes)
    return validated


def work_to_validate(records: ByteSlice, policy: AppendPolicy, enough: int) -> int:
    """About how much work validating takes, in bytes to unpack; found without unpacking, `enough` or more is enough.

    What is wrong with the records is for `validate_for_append` to report.
    """
    buffer = records.buffer
    start = records.start
    size = records.end - start
    if size <= HEADER_SIZE:
        return 0
    if policy.magic == 0:
        # Offsets stand inside wrappers of this format, and are known only at the append.
        return 0
    if buffer[start + MAGIC_AT] < 2:
        return size * _WORK_OF_OLD_FORMAT
    if i64(read_i32_be(buffer, start + LENGTH_AT)) + LOG_OVERHEAD != size:
        # Not the one batch that it should be: who knows how many.
        return enough
    codec = buffer[start + _ATTRIBUTES_AT] & CODEC_MASK
    if codec == CODEC_NONE:
        work = size // 4
    else:
        try:
            work = most_decompressed(codec, buffer, start + HEADER_SIZE, records.end, enough)
        except CorruptMessageError:
            # Where it is broken is found by unpacking what comes before.
            return enough
    if policy.codec is not None and policy.codec != codec:
        work *= _WORK_OF_COMPRESSION
    if policy.magic < 2:
        work *= _WORK_OF_OLD_FORMAT
    return work


def assign_offsets(validated: ValidatedRecords, first_offset: int, leader_epoch: int) -> None:
    """Give a batch, or messages, that were validated as if for an empty log their offsets in this one."""
    if validated.headers[0].magic < 2:
        move_messages(validated, first_offset)
    else:
        _move_batch(validated, first_offset, leader_epoch)
    validated.first_offset += first_offset
    validated.last_offset += first_offset
    if validated.offset_of_max_timestamp >= 0:
        validated.offset_of_max_timestamp += first_offset


def _move_batch(validated: ValidatedRecords, first_offset: int, leader_epoch: int) -> None:
    (header,) = validated.headers
    header.base_offset += first_offset
    header.leader_epoch = leader_epoch
    first = validated.parts[0]
    rest = memoryview(first)[MAGIC_AT:]
    validated.parts[:1] = [_prefix(header.base_offset, header.size, leader_epoch)]
    if len(rest):
        validated.parts.insert(1, rest)


def _convert_batches(
    buffer: bytes,
    headers: list[BatchHeader],
    first_offset: int,
    now_ms: int,
    policy: AppendPolicy,
    origin: int,
    most_bytes: int,
) -> ValidatedRecords:
    """Batches checked as ever, then stored as the messages of the topic's old format."""
    checked = ValidatedRecords(first_offset)
    for header in headers:
        if header.magic != 2:
            raise InvalidRecordError(f"a message of format {header.magic} among record batches")
        _check_batch(header, origin)
        if header.is_transactional or header.is_control or header.has_producer_id:
            kind = "transactional" if header.is_transactional or header.is_control else "idempotent"
            raise UnsupportedForMessageFormatError(
                f"{kind} records cannot be stored in message format {policy.magic} of this topic: raise "
                "message.format.version to 0.11.0 or later"
            )
        _append_batch(buffer, header, NO_LEADER_EPOCH, now_ms, policy, checked, most_bytes)
    limit = most_to_convert(policy, most_bytes)
    if checked.count * MESSAGE_V0_SIZE > limit:
        raise MessageTooLargeError(
            f"{checked.count} records at once are too many for message format {policy.magic} of this topic: send "
            "smaller batches"
        )
    records = read_records(b"".join(checked.parts), check_crc=False, limit=limit)
    return as_message_set(records, 2, checked.source_codec, first_offset, now_ms, policy)


def _check_request(headers: list[BatchHeader], produce_version: int) -> None:
    """What a produce request of this version may hold at all."""
    first = headers[0]
    if produce_version < _FIRST_VERSION_WITH_ZSTD:
        for header in headers:
            if header.codec == CODEC_ZSTD:
                raise UnfitCodecError(
                    f"produce requests of version {produce_version} may not use zstd; "
                    f"it needs version {_FIRST_VERSION_WITH_ZSTD}"
                )
    if first.magic < 2 and produce_version >= _FIRST_VERSION_WITH_BATCHES:
        raise UnfitRecordsError(
            f"produce requests of version {produce_version} may only hold record batches of magic 2, "
            f"not messages of magic {first.magic}"
        )
    if first.magic >= 2 and len(headers) > 1:
        raise UnfitRecordsError(
            f"produce requests of version {produce_version} may hold only one record batch per partition, "
            f"not {len(headers)}"
        )


def _check_old_set(records: ByteSlice, policy: AppendPolicy) -> None:
    """Refuse a set of old messages that cannot become a small enough batch, before an object is made of each."""
    size = records.end - records.start
    if size > _MOST_OLD_RATIO * policy.max_message_bytes and records.buffer[records.start + MAGIC_AT] < 2:
        check_size(size, policy)


def _check_batch(header: BatchHeader, origin: int) -> None:
    """The rules about a v2 batch's header."""
    if header.count <= 0:
        raise InvalidRecordError(f"a record batch declares {header.count} records")
    if header.last_offset_delta + 1 != header.count:
        raise InvalidRecordError(
            f"a record batch spans {header.last_offset_delta + 1} offsets but declares {header.count} records"
        )
    if origin == ORIGIN_CLIENT:
        if header.base_offset != 0:
            raise InvalidRecordError(f"the base offset of a produced batch must be 0, not {header.base_offset}")
        if header.is_control:
            raise InvalidRecordError("clients may not write control records")
        if header.has_producer_id and header.base_sequence < 0:
            raise InvalidRecordError(
                f"producer {header.producer_id} sent the impossible sequence number {header.base_sequence}"
            )


def _append_batch(
    buffer: bytes,
    header: BatchHeader,
    leader_epoch: int,
    now_ms: int,
    policy: AppendPolicy,
    validated: ValidatedRecords,
    most_bytes: int,
) -> None:
    """Check the records of one v2 batch and add it with its offsets assigned."""
    start = header.position
    end = start + header.size
    codec = header.codec
    content = buffer
    content_start = start + HEADER_SIZE
    content_end = end
    if codec != CODEC_NONE:
        limit = min(policy.max_decompressed_bytes, most_bytes)
        content = decompress(codec, buffer, content_start, end, limit=limit)
        content_start = 0
        content_end = len(content)
    ignore_times = policy.log_append_time or header.is_log_append_time
    scan = RecordScan(
        INT64_MIN if ignore_times else policy.lowest_timestamp(now_ms),
        INT64_MAX if ignore_times else policy.highest_timestamp(now_ms),
        policy.compacted,
    )
    scan_records(content, content_start, content_end, header.count, header.base_timestamp, scan)
    if scan.faults or header.is_log_append_time:
        _reject_faults(header, scan, now_ms, policy)

    base_offset = validated.last_offset + 1
    attributes = header.attributes & ~LOG_APPEND_TIME_BIT
    max_timestamp = int(scan.max_timestamp)
    offset_of_max = -1
    if policy.log_append_time:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = now_ms
        offset_of_max = base_offset
    elif header.is_log_append_time:
        max_timestamp = header.max_timestamp
        offset_of_max = base_offset
    elif max_timestamp != NO_TIMESTAMP:
        offset_of_max = base_offset + int(scan.index_of_max)

    body: bytes | memoryview = memoryview(buffer)[start + HEADER_SIZE : end]
    target = codec if policy.codec is None or header.is_control else policy.codec
    if target != codec:
        plain = content if codec != CODEC_NONE else buffer[content_start:content_end]
        body = compress(target, plain, policy.level)
        attributes = attributes & ~CODEC_MASK | target
        header.size = HEADER_SIZE + len(body)
        check_size(header.size, policy)
        validated.converted = True
    if target == codec and attributes == header.attributes and max_timestamp == header.max_timestamp:
        validated.parts.append(_prefix(base_offset, header.size, leader_epoch))
        validated.parts.append(memoryview(buffer)[start + MAGIC_AT : end])
    else:
        head = encode_header(
            body,
            base_offset,
            leader_epoch,
            attributes,
            header.last_offset_delta,
            header.base_timestamp,
            max_timestamp,
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.count,
        )
        validated.parts.append(head)
        validated.parts.append(body)
        header.crc = read_header(head, 0, HEADER_SIZE).crc
        header.attributes = attributes
        header.max_timestamp = max_timestamp
    header.base_offset = base_offset
    header.leader_epoch = leader_epoch
    validated.source_codec = codec
    validated.add(header, max_timestamp, offset_of_max)


def _prefix(base_offset: i64, size: i64, leader_epoch: i32) -> bytes:
    """The first 16 bytes of a batch: all that assigning an offset changes."""
    out = BytesWriter()
    write_i64_be(out, base_offset)
    write_i32_be(out, i32(size - LOG_OVERHEAD))
    write_i32_be(out, leader_epoch)
    return out.getvalue()


def _reject_faults(header: BatchHeader, scan: RecordScan, now_ms: int, policy: AppendPolicy) -> None:
    """Raise what is reported to the client about single records, if anything."""
    errors: dict[int, str] = {}
    bad_timestamp = False
    lowest = policy.lowest_timestamp(now_ms)
    highest = policy.highest_timestamp(now_ms)
    keyless = {index for index, fault, _ in scan.faults if fault == KEYLESS}
    for index, _, timestamp in scan.faults:
        # Of a record without its key only that is reported.
        if index in keyless:
            errors[index] = WITHOUT_KEY
        else:
            bad_timestamp = True
            errors[index] = out_of_range(timestamp, header.base_offset + index, lowest, highest)
    if header.is_log_append_time:
        # All records have the batch's one timestamp, which only a broker may set.
        stamp = header.max_timestamp
        for index in range(min(header.count, MOST_FAULTS)):
            if index in keyless:
                continue
            if policy.log_append_time or stamp == NO_TIMESTAMP:
                errors[index] = PRODUCERS_LOG_APPEND_TIME
                bad_timestamp = True
            elif stamp < lowest or stamp > highest:
                errors[index] = out_of_range(stamp, header.base_offset + index, lowest, highest)
                bad_timestamp = True
    if errors:
        raise rejection(sorted(errors.items()), bad_timestamp=bad_timestamp)


def _accept_replicated(buffer: bytes, headers: list[BatchHeader], first_offset: int) -> ValidatedRecords:
    """What a leader sent: whole, unharmed and in order is all a follower asks of it."""
    # A wrapper says where its messages end; they begin where the log ends, or later.
    first = headers[0]
    validated = ValidatedRecords(first.base_offset if first.count >= 0 else first_offset)
    expected = first_offset
    for header in headers:
        if header.base_offset < expected:
            raise CorruptMessageError(
                f"a replicated batch begins at offset {header.base_offset}, but the log goes on at {expected}"
            )
        expected = header.next_offset
        check_crc(buffer, header)
        start = header.position
        validated.parts.append(memoryview(buffer)[start : start + header.size])
        validated.source_codec = header.codec
        # Not decompressed here: the offset of the batch's end is close enough for a follower's time index.
        offset_of_max = header.last_offset if header.max_timestamp != NO_TIMESTAMP else -1
        validated.add(header, header.max_timestamp, offset_of_max)
    return validated
