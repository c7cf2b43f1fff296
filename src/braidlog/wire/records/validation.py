"""What a broker checks and assigns before records enter a log (hot: compiled by mypyc)."""

from __future__ import annotations

from typing import Final

from braidlog.core.slices import ByteSlice
from braidlog.wire.records.batch import BatchHeader

# Who appends: clients get every check, our coordinators may write control batches and several batches at once,
# and a follower stores what its leader already checked, offsets and epochs untouched.
ORIGIN_CLIENT: Final = 0
ORIGIN_COORDINATOR: Final = 1
ORIGIN_REPLICATION: Final = 2

LONG_MAX: Final = 0x7FFFFFFFFFFFFFFF
LATEST_PRODUCE_VERSION: Final = 12


class AppendPolicy:
    """The topic settings that decide what may be appended, and how it is stored."""

    __slots__ = (
        "codec",
        "compacted",
        "level",
        "log_append_time",
        "max_decompressed_bytes",
        "max_message_bytes",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
    )

    def __init__(
        self,
        *,
        max_message_bytes: int = 1_048_588,
        compacted: bool = False,
        log_append_time: bool = False,
        timestamp_before_max_ms: int = LONG_MAX,
        timestamp_after_max_ms: int = 3_600_000,
        codec: int | None = None,
        level: int | None = None,
        max_decompressed_bytes: int = 128 * 1024 * 1024,
    ) -> None:
        self.max_message_bytes = max_message_bytes
        self.compacted = compacted
        self.log_append_time = log_append_time
        self.timestamp_before_max_ms = timestamp_before_max_ms
        self.timestamp_after_max_ms = timestamp_after_max_ms
        # None keeps what the producer chose (`compression.type=producer`).
        self.codec = codec
        self.level = level
        self.max_decompressed_bytes = max_decompressed_bytes


class ValidatedRecords:
    """Batches ready for one `writev`: `parts` in order, and `headers` as they will stand in the log.

    `position` of the headers counts from the start of `parts`. `offset_of_max_timestamp` is the exact record's; the
    time index wants the last offset of that record's batch, as Kafka writes it.
    """

    __slots__ = (
        "converted",
        "count",
        "first_offset",
        "headers",
        "last_offset",
        "max_timestamp",
        "offset_of_max_timestamp",
        "parts",
        "size",
        "source_codec",
    )

    def __init__(
        self,
        parts: list[bytes | memoryview],
        headers: list[BatchHeader],
        size: int,
        count: int,
        max_timestamp: int,
        offset_of_max_timestamp: int,
        source_codec: int,
        converted: bool,
    ) -> None:
        self.parts = parts
        self.headers = headers
        self.size = size
        self.first_offset = headers[0].base_offset
        self.last_offset = headers[-1].last_offset
        self.count = count
        self.max_timestamp = max_timestamp
        self.offset_of_max_timestamp = offset_of_max_timestamp
        self.source_codec = source_codec
        # True when old messages were converted up or a batch was compressed anew: its bytes are not the producer's.
        self.converted = converted


def validate_for_append(
    records: ByteSlice,
    *,
    first_offset: int,
    leader_epoch: int,
    now_ms: int,
    policy: AppendPolicy,
    origin: int = ORIGIN_CLIENT,
    produce_version: int = LATEST_PRODUCE_VERSION,
) -> ValidatedRecords:
    """Check every record as Kafka 3.9 does, give the batches offsets from `first_offset` on and the leader epoch.

    Raises CorruptMessageError, InvalidRecordError, InvalidTimestampError, MessageTooLargeError,
    UnsupportedCompressionTypeError or UnsupportedForMessageFormatError; `rejection.record_errors_of(error)` lists the
    records at fault. With ORIGIN_REPLICATION offsets and epochs stay as they are and must increase.
    """
    raise NotImplementedError
