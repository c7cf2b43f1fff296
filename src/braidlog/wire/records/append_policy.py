"""What decides about an append, and what comes out of it (hot: compiled by mypyc)."""

from __future__ import annotations

from braidlog.core.protocol_errors import MessageTooLargeError
from braidlog.wire.records.batch import CODEC_NONE, NO_TIMESTAMP, BatchHeader
from braidlog.wire.records.compression import DEFAULT_LIMIT
from braidlog.wire.records.varint import INT64_MAX, INT64_MIN


class AppendPolicy:
    """The topic settings that decide what may be appended, and how it is stored."""

    __slots__ = (
        "codec",
        "compacted",
        "level",
        "log_append_time",
        "magic",
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
        timestamp_before_max_ms: int = INT64_MAX,
        timestamp_after_max_ms: int = 3_600_000,
        codec: int | None = None,
        level: int | None = None,
        max_decompressed_bytes: int = DEFAULT_LIMIT,
        magic: int = 2,
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
        # The format in which records are stored: 2, or that of a topic for older peers.
        self.magic = magic

    def lowest_timestamp(self, now_ms: int) -> int:
        return max(now_ms - self.timestamp_before_max_ms, INT64_MIN)

    def highest_timestamp(self, now_ms: int) -> int:
        return min(now_ms + self.timestamp_after_max_ms, INT64_MAX)


class ValidatedRecords:
    """Batches ready for one `writev`: `parts` in order, and `headers` as they will stand in the log.

    `position` of the headers counts from the start of `parts`. `offset_of_max_timestamp` is the exact record's,
    -1 without timestamps; the time index wants the last offset of its batch, as Kafka writes it.
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

    def __init__(self, first_offset: int) -> None:
        self.parts: list[bytes | memoryview] = []
        self.headers: list[BatchHeader] = []
        self.size = 0
        self.count = 0
        self.first_offset = first_offset
        self.last_offset = first_offset - 1
        self.max_timestamp = NO_TIMESTAMP
        self.offset_of_max_timestamp = -1
        self.source_codec = CODEC_NONE
        # True when the stored records are not the producer's bytes: converted up, or compressed anew.
        self.converted = False

    def add(self, header: BatchHeader, max_timestamp: int, offset_of_max: int) -> None:
        """Account for a batch whose parts were just appended."""
        header.position = self.size
        self.headers.append(header)
        self.size += header.size
        self.count += header.count
        self.last_offset = header.last_offset
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = offset_of_max


def check_size(size: int, policy: AppendPolicy) -> None:
    if size > policy.max_message_bytes:
        raise MessageTooLargeError(
            f"the record batch takes {size} bytes, more than the {policy.max_message_bytes} "
            "that max.message.bytes allows"
        )
