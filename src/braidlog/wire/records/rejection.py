"""Refusals that name the records at fault, so that Produce v8+ can list them (KIP-467)."""

from __future__ import annotations

from braidlog.core.protocol_errors import InvalidRecordError, InvalidTimestampError, ProtocolError

RecordError = tuple[int, str]


class RejectedRecordsError(InvalidRecordError):
    """INVALID_RECORD with `record_errors`: (index in the batch, what is wrong with it)."""

    def __init__(self, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class RejectedTimestampsError(InvalidTimestampError):
    """INVALID_TIMESTAMP with `record_errors`: (index in the batch, what is wrong with it)."""

    def __init__(self, message: str, record_errors: list[RecordError]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


def record_errors_of(error: ProtocolError) -> list[RecordError]:
    """What a produce response lists as `record_errors` for this error; empty for errors about the whole batch."""
    if isinstance(error, (RejectedRecordsError, RejectedTimestampsError)):
        return error.record_errors
    return []
