"""What a broker refused, told with what it was about and what to do next."""

from __future__ import annotations

from typing import Final

from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import NONE, ProtocolError, from_code

# Said where the broker gives no reason of its own; an imperative a person can follow.
_ADVICE: Final[dict[int, str]] = {
    errors.UnknownTopicOrPartitionError.code: "it does not exist; `braidlog topics list` shows what does, "
    "`braidlog topics create` makes one",
    errors.UnknownTopicIdError.code: "it was deleted, or deleted and made again, meanwhile; try again",
    errors.TopicAlreadyExistsError.code: "it exists already; --if-not-exists makes that no error",
    errors.LeaderNotAvailableError.code: "it has no leader now; `braidlog topics describe` shows which brokers hold it",
    errors.NotLeaderOrFollowerError.code: "its leader moved; try again",
    errors.NotControllerError.code: "the controller moved; try again",
    errors.OffsetOutOfRangeError.code: "there are no records at that offset; use --offset earliest or latest",
    errors.MessageTooLargeError.code: "a record is larger than the topic takes; raise its max.message.bytes with "
    "`braidlog configs alter`, or compress",
    errors.RecordListTooLargeError.code: "a batch is larger than a segment of the topic; raise its segment.bytes",
    errors.NotEnoughReplicasError.code: "fewer replicas are in sync than min.insync.replicas asks; bring brokers back, "
    "or write with --acks 1",
    errors.NotEnoughReplicasAfterAppendError.code: "it was written, but fewer replicas are in sync than "
    "min.insync.replicas asks; bring brokers back",
    errors.RequestTimedOutError.code: "the broker gave up waiting; it may have happened all the same: look first",
    errors.InvalidTimestampError.code: "a timestamp is too far from the broker's clock; see "
    "message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    errors.InvalidRecordError.code: "a record is not what the topic takes; a compacted topic needs keys",
    errors.UnsupportedCompressionTypeError.code: "the topic or broker does not take this compression; choose another",
    errors.KafkaStorageError.code: "the disk under it failed; the broker's log names it, `braidlog doctor` explains",
    errors.TopicAuthorizationFailedError.code: "not authorized for it",
    errors.ClusterAuthorizationFailedError.code: "not authorized for the cluster",
    errors.TopicDeletionDisabledError.code: "the broker has delete.topic.enable=false",
    errors.CorruptMessageError.code: "bytes on disk or on the way are damaged; `braidlog log verify` finds where",
    errors.GroupIdNotFoundError.code: "it does not exist; `braidlog groups list` shows what does",
    errors.InvalidGroupIdError.code: "that is no name for a group; give one that is not empty",
    errors.NonEmptyGroupError.code: "it has active members; stop them first (`braidlog groups describe --members` "
    "shows who they are)",
    errors.GroupSubscribedToTopicError.code: "the group is reading this topic; stop its members first (`braidlog "
    "groups describe --members` shows who they are)",
    errors.UnknownMemberIdError.code: "the group has active members by now; stop them and try again",
    errors.RebalanceInProgressError.code: "the group is rebalancing; stop its members and try again",
    errors.GroupAuthorizationFailedError.code: "not authorized for it",
    errors.CoordinatorNotAvailableError.code: "its coordinator is not available; `braidlog topics describe` of "
    "__consumer_offsets or __transaction_state shows why",
    errors.CoordinatorLoadInProgressError.code: "its coordinator is still loading; try again",
    errors.NotCoordinatorError.code: "its coordinator moved; try again",
    errors.TransactionalIdNotFoundError.code: "it does not exist; `braidlog transactions list` shows what does",
    errors.TransactionalIdAuthorizationFailedError.code: "not authorized for it",
    errors.ConcurrentTransactionsError.code: "its transaction before is still being ended; try again",
    errors.InvalidProducerEpochError.code: "its producer has a newer epoch by now; look again with `braidlog "
    "transactions producers`",
    errors.TransactionCoordinatorFencedError.code: "a newer coordinator has ended a transaction here meanwhile; look "
    "again with `braidlog transactions producers`",
    errors.InvalidTxnStateError.code: "its transaction is in a state that does not allow this; look again with "
    "`braidlog transactions describe`",
    errors.UnknownServerError.code: "the broker failed; its log has the reason",
}


def check(error_code: int, what: str, message: str | None = None) -> None:
    """Raise the protocol's error, told with what it was about."""
    if error_code != NONE:
        raise refusal(error_code, what, message)


def refusal(error_code: int, what: str, message: str | None = None) -> ProtocolError:
    error = from_code(error_code)
    reason = message or _ADVICE.get(error_code)
    return type(error)(f"{what}: {reason}" if reason else what)
