"""Replies to waiting requests, and what clients are given when a change could not be written.

The replies of one commit belong to many groups and connections. One that cannot be encoded in its client's version,
or whose connection fails, must neither keep the others from theirs nor stop the commit that is under way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from braidlog.coordinator.effects import Responder
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
from braidlog.wire.message import Message

log = logging.getLogger("braidlog.coordinator")

Reply = tuple[Responder, Message | ProtocolError]
# Called once: None when the append is committed, else why it never will be.
AppendCallback = Callable[[ProtocolError | None], None]

# Clients know the errors of coordinators, not those of the log behind one.
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
    """The error of an append to an internal topic as a client of the coordinator understands it."""
    client_error = _CLIENT_ERRORS.get(error.code)
    return error if client_error is None else client_error(error.message or error.name)


def fail_all(where: str, replies: Iterable[Reply], error: ProtocolError) -> None:
    """What the replies were to say has not come to be."""
    for responder, _ in replies:
        fail(where, responder, error)


def fail(where: str, responder: Responder, error: ProtocolError) -> None:
    try:
        responder.fail(error)
    except Exception as bug:
        log.error("%s: a client got no response", where, exc_info=bug)


def log_bug(where: str, bug: Exception) -> ProtocolError:
    """Log a bug; returns the error for the client."""
    log.error("%s: a bug in braidlog, please report it", where, exc_info=bug)
    return UnknownServerError("the broker met a bug; its log has the details")
