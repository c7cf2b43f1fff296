"""Between formats: down to message sets for Fetch v0–v3, and at the append into the format that the topic has."""

from __future__ import annotations

from braidlog.core.protocol_errors import (
    InvalidRecordError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from braidlog.wire.records.append_policy import AppendPolicy, ValidatedRecords, check_size
from braidlog.wire.records.batch import (
    CODEC_NONE,
    CODEC_ZSTD,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    BatchHeader,
    iterate_headers,
    read_header,
)
from braidlog.wire.records.builder import build_batch, build_message_set
from braidlog.wire.records.compression import DEFAULT_LIMIT
from braidlog.wire.records.reading import Record, read_batch
from braidlog.wire.records.record_errors import (
    PRODUCERS_LOG_APPEND_TIME,
    WITHOUT_KEY,
    RecordError,
    out_of_range,
    rejection,
)

# Converting makes an object of every message: a bound nearer than that of plain decompression keeps memory in check.
_MOST_OLD_BYTES = 16 * 1024 * 1024


def down_convert(
    buffer: bytes,
    start: int,
    end: int,
    *,
    magic: int,
    first_offset: int = 0,
    check_crc: bool = False,
    limit: int = DEFAULT_LIMIT,
) -> bytes:
    """The whole batches of `buffer[start:end]` as messages of `magic` 0 or 1.

    Offsets and compression stay; headers and control batches, which the old formats cannot express, are left
    out, and so are records of uncompressed batches below `first_offset`. Raises UnsupportedCompressionTypeError
    for zstd, which readers of the old formats do not know.
    """
    pieces: list[bytes] = []
    for header in iterate_headers(buffer, start, end):
        if header.magic <= magic:
            pieces.append(buffer[header.position : header.position + header.size])
            continue
        if header.is_control:
            continue
        if header.codec == CODEC_ZSTD:
            raise UnsupportedCompressionTypeError(
                "the partition holds zstd batches, which only Fetch v10 and later may read; upgrade the client"
            )
        records = read_batch(buffer, header, check_crc=check_crc, limit=limit)
        # Readers of compressed messages drop what they did not ask for themselves; of plain ones they do not.
        wanted = [record for record in records if header.codec != CODEC_NONE or record.offset >= first_offset]
        if wanted:
            pieces.append(
                build_message_set(
                    wanted,
                    magic=magic,
                    codec=header.codec,
                    log_append_time_ms=header.max_timestamp if header.is_log_append_time else None,
                    keep_offsets=True,
                )
            )
    return b"".join(pieces)


def read_message_set(buffer: bytes, start: int, end: int, *, limit: int = DEFAULT_LIMIT) -> list[Record]:
    """Every message of an old set, wrappers unpacked, checksums checked (inner ones too)."""
    return _old_records(buffer, iterate_headers(buffer, start, end), limit)


def _old_records(buffer: bytes, headers: list[BatchHeader], limit: int) -> list[Record]:
    records: list[Record] = []
    for header in headers:
        if header.magic != headers[0].magic:
            raise InvalidRecordError(f"messages of formats {headers[0].magic} and {header.magic} in one set")
        if header.codec != CODEC_NONE and len(headers) > 1:
            raise InvalidRecordError("a compressed message must be the only one in its set")
        records.extend(read_batch(buffer, header, check_crc=True, limit=limit))
    return records


def convert_messages(
    buffer: bytes,
    headers: list[BatchHeader],
    first_offset: int,
    leader_epoch: int,
    now_ms: int,
    policy: AppendPolicy,
    most_bytes: int = DEFAULT_LIMIT,
) -> ValidatedRecords:
    """Messages of format 0 or 1 in the format of the topic: checked, and stored as one v2 batch or one message set.

    Offsets of the messages do not matter: producers of the old formats put anything there.
    """
    records = _old_records(buffer, headers, most_to_convert(policy, most_bytes))
    codec = headers[0].codec
    _check_old_records(records, codec != CODEC_NONE, now_ms, policy)
    if policy.magic < 2:
        return as_message_set(records, headers[0].magic, codec, first_offset, now_ms, policy)
    batch = build_batch(
        records,
        base_offset=first_offset,
        codec=codec if policy.codec is None else policy.codec,
        level=policy.level,
        leader_epoch=leader_epoch,
        log_append_time_ms=now_ms if policy.log_append_time else None,
    )
    check_size(len(batch), policy)
    validated = ValidatedRecords(first_offset)
    validated.parts.append(batch)
    validated.converted = True
    validated.source_codec = codec
    stored = read_header(batch, 0, len(batch))
    validated.add(stored, stored.max_timestamp, _offset_of_max(records, stored.max_timestamp, first_offset, policy))
    return validated


def most_to_convert(policy: AppendPolicy, most_bytes: int) -> int:
    """How many bytes of messages may become objects at once."""
    return min(policy.max_decompressed_bytes, most_bytes, max(_MOST_OLD_BYTES, 16 * policy.max_message_bytes))


def as_message_set(
    records: list[Record], source_magic: int, source_codec: int, first_offset: int, now_ms: int, policy: AppendPolicy
) -> ValidatedRecords:
    """Records that were checked, as a set of the topic's old format, which has no place for headers."""
    codec = source_codec if policy.codec is None else policy.codec
    for index, record in enumerate(records):
        if record.headers:
            raise UnsupportedForMessageFormatError(
                f"record {index} has headers, which message format {policy.magic} of this topic has no place for: "
                "raise message.format.version to 0.11.0 or later"
            )
    data = build_message_set(
        records,
        magic=policy.magic,
        base_offset=first_offset,
        codec=codec,
        level=policy.level,
        log_append_time_ms=now_ms if policy.log_append_time else None,
    )
    validated = ValidatedRecords(first_offset)
    validated.parts.append(data)
    # Messages of the topic's own format only get their offsets, which a wrapper of format 0 has inside, too.
    with_inner_offsets = policy.magic == 0 and codec != CODEC_NONE
    validated.converted = source_magic != policy.magic or source_codec != codec or with_inner_offsets
    validated.source_codec = source_codec
    for header in iterate_headers(data, 0, len(data)):
        check_size(header.size, policy)
        if header.codec != CODEC_NONE:
            # Of the wrapper only the number of its messages is missing.
            header.count = len(records)
        validated.add(header, header.max_timestamp, header.base_offset)
    if validated.max_timestamp != NO_TIMESTAMP:
        maximum = validated.max_timestamp
        validated.offset_of_max_timestamp = _offset_of_max(records, maximum, first_offset, policy)
    return validated


def move_messages(validated: ValidatedRecords, offset: int) -> None:
    """Raise the offsets of messages by so much; those inside a wrapper of format 1 count from its last one."""
    data = bytearray(b"".join(validated.parts))
    for header in validated.headers:
        header.base_offset += offset
        data[header.position : header.position + 8] = header.base_offset.to_bytes(8, "big")
    validated.parts = [bytes(data)]


def _offset_of_max(records: list[Record], max_timestamp: int, first_offset: int, policy: AppendPolicy) -> int:
    """The offset of the first record with the largest timestamp; -1 where none has any."""
    if policy.log_append_time:
        return first_offset
    if max_timestamp == NO_TIMESTAMP:
        return -1
    return first_offset + [record.timestamp for record in records].index(max_timestamp)


def _check_old_records(records: list[Record], compressed: bool, now_ms: int, policy: AppendPolicy) -> None:
    errors: list[RecordError] = []
    bad_timestamp = False
    lowest = policy.lowest_timestamp(now_ms)
    highest = policy.highest_timestamp(now_ms)
    for index, record in enumerate(records):
        # Plain messages are answered for one by one, those of a wrapper together, as Kafka does.
        if errors and not compressed:
            break
        if policy.compacted and record.key is None:
            errors.append((index, WITHOUT_KEY))
        elif not policy.log_append_time and record.timestamp != NO_TIMESTAMP:
            if record.timestamp < lowest or record.timestamp > highest:
                errors.append((index, out_of_range(record.timestamp, record.offset, lowest, highest)))
                bad_timestamp = True
        elif record.attributes & LOG_APPEND_TIME_BIT:
            errors.append((index, PRODUCERS_LOG_APPEND_TIME))
            bad_timestamp = True
    if errors:
        raise rejection(errors, bad_timestamp=bad_timestamp)
