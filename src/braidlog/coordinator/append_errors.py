"""What clients are told when a coordinator's own log refused an append: their view has no such log."""

from __future__ import annotations

from braidlog.core.protocol_errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidFetchSizeError,
    KafkaStorageError,
    MessageTooLargeError,
    NetworkError,
    NotCoordinatorError,
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderOrFollowerError,
    ProtocolError,
    RecordListTooLargeError,
    RequestTimedOutError,
    UnknownServerError,
    UnknownTopicOrPartitionError,
)

_TOLD: dict[int, type[ProtocolError]] = {
    UnknownTopicOrPartitionError.code: CoordinatorNotAvailableError,
    NotEnoughReplicasError.code: CoordinatorNotAvailableError,
    NotEnoughReplicasAfterAppendError.code: CoordinatorNotAvailableError,
    RequestTimedOutError.code: CoordinatorNotAvailableError,
    NotLeaderOrFollowerError.code: NotCoordinatorError,
    KafkaStorageError.code: NotCoordinatorError,
    MessageTooLargeError.code: UnknownServerError,
    RecordListTooLargeError.code: UnknownServerError,
    InvalidFetchSizeError.code: UnknownServerError,
    # A transaction could not be verified; older clients retry after this one alone.
    NetworkError.code: CoordinatorLoadInProgressError,
}


def told_to_clients(error: ProtocolError) -> ProtocolError:
    told = _TOLD.get(error.code)
    return error if told is None else told(error.message or error.name)
