"""Refusals that name the records at fault, so that Produce v8+ can list them (KIP-467)."""

from __future__ import annotations

from braidlog.core.protocol_errors import (
    InvalidRecordError,
    InvalidTimestampError,
    ProtocolError,
    UnsupportedCompressionTypeError,
)

# (index of the record in its batch, what is wrong with it)
RecordError = tuple[int, str]

WITHOUT_KEY = "a compacted topic cannot take a record without a key"
PRODUCERS_LOG_APPEND_TIME = "producers may not set the timestamp type to LogAppendTime"

_SHOWN = 3


class RejectedRecordsError(InvalidRecordError):
    """INVALID_RECORD with the records at fault in `record_errors`."""

    def __init__(self, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class RejectedTimestampsError(InvalidTimestampError):
    """INVALID_TIMESTAMP with the records at fault in `record_errors`."""

    def __init__(self, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class UnfitRecordsError(InvalidRecordError):
    """INVALID_RECORD of a request that never reaches a log: not what a produce of its version may hold."""


class UnfitCodecError(UnsupportedCompressionTypeError):
    """UNSUPPORTED_COMPRESSION_TYPE of a request that never reaches a log."""


def is_unfit(error: ProtocolError) -> bool:
    return isinstance(error, (UnfitRecordsError, UnfitCodecError))


def out_of_range(timestamp: int, offset: int, lowest: int, highest: int) -> str:
    return (
        f"timestamp {timestamp} of the record with offset {offset} is out of range; "
        f"it must be within [{lowest}, {highest}]"
    )


def rejection(errors: list[RecordError], *, bad_timestamp: bool) -> ProtocolError:
    """One bad timestamp is enough for the whole answer to be about timestamps, as in Kafka."""
    return rejected_timestamps(errors) if bad_timestamp else rejected_records(errors)


def rejected_records(errors: list[RecordError]) -> RejectedRecordsError:
    return RejectedRecordsError(f"{len(errors)} records were rejected: {_first_few(errors)}", errors)


def rejected_timestamps(errors: list[RecordError]) -> RejectedTimestampsError:
    return RejectedTimestampsError(
        f"{len(errors)} records were rejected for their timestamps: {_first_few(errors)}", errors
    )


def record_errors_of(error: ProtocolError) -> list[RecordError]:
    """What a produce response lists as `record_errors`; empty for errors about the whole batch."""
    if isinstance(error, (RejectedRecordsError, RejectedTimestampsError)):
        return error.record_errors
    return []


def _first_few(errors: list[RecordError]) -> str:
    shown = "; ".join(f"record {index}: {message}" for index, message in errors[:_SHOWN])
    return shown if len(errors) <= _SHOWN else f"{shown}; …"
