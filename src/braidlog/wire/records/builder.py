"""Batches and old message sets from records: for clients, coordinators, the command line and tests."""

from __future__ import annotations

from collections.abc import Iterable

from librt.strings import BytesWriter

from braidlog.core.gil import yield_gil
from braidlog.core.protocol_errors import (
    InvalidRecordError,
    UnsupportedCompressionTypeError,
    UnsupportedForMessageFormatError,
)
from braidlog.wire.records.batch import (
    CODEC_NONE,
    CODEC_ZSTD,
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME_BIT,
    NO_TIMESTAMP,
    TRANSACTIONAL,
)
from braidlog.wire.records.compression import compress
from braidlog.wire.records.encoding import encode_header, write_message, write_record
from braidlog.wire.records.reading import Record


def build_batch(
    records: Iterable[Record],
    *,
    base_offset: int = 0,
    codec: int = CODEC_NONE,
    level: int | None = None,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    keep_offsets: bool = False,
) -> bytes:
    """One v2 batch; records take offsets from `base_offset` on, or keep theirs with `keep_offsets`.

    `log_append_time_ms` stamps the whole batch; `delete_horizon_ms` is the cleaner's mark (KIP-534).
    """
    items = list(records)
    if keep_offsets and items:
        base_offset = min(base_offset, items[0].offset) if base_offset else items[0].offset
    base_timestamp = items[0].timestamp if items else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        base_timestamp = delete_horizon_ms
    out = BytesWriter()
    max_timestamp = NO_TIMESTAMP
    last_delta = -1
    for index, record in enumerate(items):
        if index & 0x7FF == 0x7FF:
            yield_gil()
        delta = record.offset - base_offset if keep_offsets else index
        if delta <= last_delta:
            raise InvalidRecordError(f"offset {record.offset} does not follow the record before it")
        last_delta = delta
        max_timestamp = max(max_timestamp, record.timestamp)
        write_record(
            out,
            0,
            record.timestamp - base_timestamp,
            delta,
            record.key,
            record.value,
            record.headers,
        )
    attributes = codec
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time_ms
    if transactional:
        attributes |= TRANSACTIONAL
    if control:
        attributes |= CONTROL
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON
    body = compress(codec, out.getvalue(), level)
    header = encode_header(
        body,
        base_offset,
        leader_epoch,
        attributes,
        max(last_delta, 0),
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(items),
    )
    return header + body


def build_message_set(
    records: Iterable[Record],
    *,
    magic: int,
    base_offset: int = 0,
    codec: int = CODEC_NONE,
    level: int | None = None,
    log_append_time_ms: int | None = None,
    keep_offsets: bool = False,
) -> bytes:
    """Messages of format 0 or 1; with a codec all in one wrapper (inner offsets count from 0 in format 1)."""
    if magic not in (0, 1):
        raise UnsupportedForMessageFormatError(f"message sets exist in formats 0 and 1, not {magic}")
    if codec == CODEC_ZSTD:
        raise UnsupportedCompressionTypeError("zstd needs record batches (format 2)")
    items = list(records)
    stamp = LOG_APPEND_TIME_BIT if log_append_time_ms is not None and magic == 1 else 0
    offsets = [record.offset if keep_offsets else base_offset + index for index, record in enumerate(items)]
    out = BytesWriter()
    relative_to = offsets[0] if codec != CODEC_NONE and magic == 1 and offsets else 0
    max_timestamp = NO_TIMESTAMP
    for index, record in enumerate(items):
        if index & 0x7FF == 0x7FF:
            yield_gil()
        offset = offsets[index]
        timestamp = log_append_time_ms if log_append_time_ms is not None else record.timestamp
        max_timestamp = max(max_timestamp, timestamp)
        write_message(out, offset - relative_to, magic, stamp, timestamp, record.key, record.value)
    if codec == CODEC_NONE or not items:
        return out.getvalue()
    wrapped = compress(codec, out.getvalue(), level, magic=magic)
    wrapper = BytesWriter()
    write_message(wrapper, offsets[-1], magic, codec | stamp, max_timestamp, None, wrapped)
    return wrapper.getvalue()
