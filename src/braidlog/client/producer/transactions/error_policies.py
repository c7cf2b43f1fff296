"""What an error means for a transaction, by the request that it answers.

DONE        no error
AGAIN       the same request may succeed a moment later
SOON        the same, and the moment is short: the transaction before is being ended
ELSEWHERE   the coordinator moved or is not known: find it, then ask again
ABORTABLE   the transaction has to be aborted: AbortableError; after abort_transaction() the producer goes on
RENEW       the same, if a new epoch can be had, else FATAL: the coordinator forgot the producer (KIP-360)
FATAL       the producer cannot go on: ProducerFailedError, or FencedProducerError where another took its place
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from braidlog.client.errors import AbortableError, ClientError, FencedProducerError, ProducerFailedError
from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import NONE, ProtocolError, from_code

_ABORT: Final = "call abort_transaction(), then begin another transaction"
_CLOSE: Final = "close this producer and make a new one"


class ErrorAction(Enum):
    DONE = auto()
    AGAIN = auto()
    SOON = auto()
    ELSEWHERE = auto()
    ABORTABLE = auto()
    RENEW = auto()
    FATAL = auto()


class ErrorPolicy:
    """The verdicts for the answers to one kind of request."""

    def __init__(self, verdicts: Mapping[type[ProtocolError], ErrorAction], otherwise: ErrorAction) -> None:
        self._otherwise = otherwise
        self._verdicts = {NONE: ErrorAction.DONE, **{error.code: verdict for error, verdict in verdicts.items()}}

    def of(self, code: int) -> ErrorAction:
        return self._verdicts.get(code, self._otherwise)


_COORDINATOR: Final = {
    errors.CoordinatorNotAvailableError: ErrorAction.ELSEWHERE,
    errors.NotCoordinatorError: ErrorAction.ELSEWHERE,
    errors.CoordinatorLoadInProgressError: ErrorAction.AGAIN,
}
_TRANSACTION: Final = {
    **_COORDINATOR,
    errors.ConcurrentTransactionsError: ErrorAction.SOON,
    errors.TransactionAbortableError: ErrorAction.ABORTABLE,
}
_FORGOTTEN: Final = {
    errors.UnknownProducerIdError: ErrorAction.RENEW,
    errors.InvalidProducerIdMappingError: ErrorAction.RENEW,
}
# The coordinator itself says so: there is a newer epoch than ours.
_FENCED: Final = (errors.ProducerFencedError.code, errors.InvalidProducerEpochError.code)
_FENCING: Final = {errors.ProducerFencedError: ErrorAction.FATAL, errors.InvalidProducerEpochError: ErrorAction.FATAL}

FINDING: Final = ErrorPolicy(
    {**_COORDINATOR, errors.GroupAuthorizationFailedError: ErrorAction.ABORTABLE}, otherwise=ErrorAction.FATAL
)
INITIALISING: Final = ErrorPolicy(
    {**_COORDINATOR, errors.ConcurrentTransactionsError: ErrorAction.SOON}, otherwise=ErrorAction.FATAL
)
ADDING_PARTITIONS: Final = ErrorPolicy(
    {
        **_TRANSACTION,
        **_FORGOTTEN,
        **_FENCING,
        errors.UnknownTopicOrPartitionError: ErrorAction.AGAIN,
        # Another partition of the same request was refused; that one decides.
        errors.OperationNotAttemptedError: ErrorAction.AGAIN,
        errors.TransactionalIdAuthorizationFailedError: ErrorAction.FATAL,
        errors.InvalidTxnStateError: ErrorAction.FATAL,
    },
    otherwise=ErrorAction.ABORTABLE,
)
ADDING_OFFSETS: Final = ErrorPolicy(
    {**_TRANSACTION, **_FORGOTTEN, errors.GroupAuthorizationFailedError: ErrorAction.ABORTABLE},
    otherwise=ErrorAction.FATAL,
)
COMMITTING_OFFSETS: Final = ErrorPolicy(
    {
        **_TRANSACTION,
        **_FORGOTTEN,
        errors.RequestTimedOutError: ErrorAction.ELSEWHERE,
        errors.UnknownTopicOrPartitionError: ErrorAction.AGAIN,
        errors.GroupAuthorizationFailedError: ErrorAction.ABORTABLE,
        errors.TopicAuthorizationFailedError: ErrorAction.ABORTABLE,
        errors.OffsetMetadataTooLargeError: ErrorAction.ABORTABLE,
        # The group went on without the member whose offsets these are: another one has its partitions by now.
        errors.FencedInstanceIdError: ErrorAction.ABORTABLE,
        errors.UnknownMemberIdError: ErrorAction.ABORTABLE,
        errors.IllegalGenerationError: ErrorAction.ABORTABLE,
        errors.StaleMemberEpochError: ErrorAction.ABORTABLE,
        errors.RebalanceInProgressError: ErrorAction.ABORTABLE,
    },
    otherwise=ErrorAction.FATAL,
)
ENDING: Final = ErrorPolicy({**_TRANSACTION, **_FORGOTTEN}, otherwise=ErrorAction.FATAL)
# Errors of a batch that was given up. A partition's leader that knows a newer epoch does not say whose it is: the
# coordinator will, when it is asked to abort (KIP-588).
_FATAL_IN_PRODUCE: Final = (
    errors.ClusterAuthorizationFailedError,
    errors.TransactionalIdAuthorizationFailedError,
    errors.ProducerFencedError,
    errors.UnsupportedVersionError,
)

_REASONS: Final[dict[int, str]] = {
    errors.TransactionalIdAuthorizationFailedError.code: "not authorized for the transactional id; an ACL has to allow "
    "WRITE and DESCRIBE on it",
    errors.ClusterAuthorizationFailedError.code: "not authorized to write idempotently to the cluster",
    errors.TopicAuthorizationFailedError.code: "not authorized for the topic",
    errors.GroupAuthorizationFailedError.code: "not authorized for the group",
    errors.InvalidTransactionTimeoutError.code: "transaction.timeout.ms is larger than the broker allows "
    "(its transaction.max.timeout.ms)",
    errors.InvalidTxnStateError.code: "the coordinator knows of no such transaction",
    errors.UnknownMemberIdError.code: "the group has gone on without this consumer, which has to poll again",
    errors.IllegalGenerationError.code: "the group has rebalanced since the records were polled",
    errors.StaleMemberEpochError.code: "the group has rebalanced since the records were polled",
    errors.RebalanceInProgressError.code: "the group is rebalancing",
    errors.FencedInstanceIdError.code: "another consumer has taken the place of this group.instance.id",
    errors.TransactionAbortableError.code: "the broker asks for the transaction to be aborted",
    errors.UnknownProducerIdError.code: "the broker has forgotten this producer",
    errors.InvalidProducerIdMappingError.code: "the coordinator has forgotten this producer: it was silent for longer "
    "than the broker's transactional.id.expiration.ms",
}


def error_for_code(transactional_id: str, doing: str, code: int, *, fatal: bool) -> ClientError:
    """The error a program sees, with the protocol's own as its cause."""
    cause = from_code(code)
    if fatal and code in _FENCED:
        error: ClientError = fenced_error(transactional_id)
    else:
        reason = _REASONS.get(code)
        message = f"{doing} failed with {cause.name}" + (f" ({reason})" if reason else "")
        error = fatal_error(transactional_id, message) if fatal else abortable_error(message)
    error.__cause__ = cause
    return error


def abortable_error(message: str) -> AbortableError:
    return AbortableError(f"the transaction cannot be committed: {message}; {_ABORT}")


def fatal_error(transactional_id: str, message: str) -> ProducerFailedError:
    return ProducerFailedError(
        f"the producer with transactional id {transactional_id} cannot go on: {message}; {_CLOSE}"
    )


def fenced_error(transactional_id: str) -> FencedProducerError:
    return FencedProducerError(
        f"another producer with transactional id {transactional_id} has taken over, or the coordinator has ended a "
        "transaction that was open for longer than transaction.timeout.ms; close this producer, and see that only one "
        "at a time has the id"
    )


def error_of_lost_batch(transactional_id: str, place: str, error: Exception) -> ClientError:
    """What the loss of a batch means: AbortableError, or ProducerFailedError."""
    if isinstance(error, (AbortableError, ProducerFailedError)):
        return error
    if isinstance(error, errors.ProducerFencedError):
        made: ClientError = fenced_error(transactional_id)
    elif isinstance(error, _FATAL_IN_PRODUCE):
        made = fatal_error(transactional_id, f"writing to {place} failed ({error})")
    else:
        made = abortable_error(f"records for {place} were not written ({error})")
    made.__cause__ = error
    return made
