"""Maps errors of an append to an internal topic to the coordinator errors that clients understand."""

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

_CLIENT_ERRORS: dict[int, type[ProtocolError]] = {
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


def to_client_error(error: ProtocolError) -> ProtocolError:
    client_error = _CLIENT_ERRORS.get(error.code)
    return error if client_error is None else client_error(error.message or error.name)
