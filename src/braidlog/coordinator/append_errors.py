"""What clients are told when a coordinator's own log refused an append: their view has no such log."""

from __future__ import annotations

from braidlog.core.protocol_errors import (
    CoordinatorNotAvailableError,
    InvalidFetchSizeError,
    KafkaStorageError,
    MessageTooLargeError,
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
}


def told_to_clients(error: ProtocolError) -> ProtocolError:
    client_error = _TOLD.get(error.code)
    return error if client_error is None else client_error(error.message or error.name)
