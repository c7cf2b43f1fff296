"""What a broker refused, as an error that says what it was about and what to do next."""

from __future__ import annotations

from typing import Final, NamedTuple

from braidlog.core import protocol_errors as errors
from braidlog.core.protocol_errors import NONE, ProtocolError, from_code


class Advice(NamedTuple):
    """What the code means, said where the broker gives no reason of its own; and what a person can do about it."""

    fact: str
    next: str = ""


_AUTHORIZE: Final = "ask the administrator of the cluster for the permission (Admin.create_acls grants it)"

# Programs read these words; `cli.option_words` has what they are called at the command line.
_ADVICE: Final[dict[type[ProtocolError], Advice]] = {
    errors.UnknownServerError: Advice("the broker failed", "its log has the reason"),
    errors.OffsetOutOfRangeError: Advice("there are no records at that offset", "use the earliest or the latest"),
    errors.CorruptMessageError: Advice("bytes on disk or on the way are damaged", "`braidlog log verify` finds where"),
    errors.UnknownTopicOrPartitionError: Advice(
        "it does not exist", "`braidlog topics list` shows what does, `braidlog topics create` makes one"
    ),
    errors.UnknownTopicIdError: Advice("it was deleted, or deleted and made again, meanwhile", "try again"),
    errors.LeaderNotAvailableError: Advice(
        "it has no leader now", "`braidlog topics describe` shows which brokers hold it"
    ),
    errors.NotLeaderOrFollowerError: Advice("its leader moved", "try again"),
    errors.RequestTimedOutError: Advice("the broker gave up waiting", "it may have happened all the same: look first"),
    errors.BrokerNotAvailableError: Advice("the broker is not available", "see that it runs, then try again"),
    errors.ReplicaNotAvailableError: Advice(
        "the broker has no copy of it", "describe the topic to see which brokers do"
    ),
    errors.MessageTooLargeError: Advice(
        "a record is larger than the topic takes",
        "raise its max.message.bytes with `braidlog configs alter`, or compress",
    ),
    errors.OffsetMetadataTooLargeError: Advice(
        "the metadata of an offset is too long", "shorten it, or raise offset.metadata.max.bytes of the brokers"
    ),
    errors.CoordinatorLoadInProgressError: Advice("its coordinator is still loading", "try again"),
    errors.CoordinatorNotAvailableError: Advice(
        "its coordinator is not available",
        "`braidlog topics describe` of __consumer_offsets or __transaction_state shows why",
    ),
    errors.NotCoordinatorError: Advice("its coordinator moved", "try again"),
    errors.InvalidTopicError: Advice(
        "that is no name for a topic", "use up to 249 letters, digits, dots, underscores and dashes"
    ),
    errors.RecordListTooLargeError: Advice("a batch is larger than a segment of the topic", "raise its segment.bytes"),
    errors.NotEnoughReplicasError: Advice(
        "fewer replicas are in sync than min.insync.replicas asks",
        "bring brokers back, or write with acks=1",
    ),
    errors.NotEnoughReplicasAfterAppendError: Advice(
        "it was written, but fewer replicas are in sync than min.insync.replicas asks", "bring brokers back"
    ),
    errors.InvalidGroupIdError: Advice("that is no name for a group", "give one that is not empty"),
    errors.UnknownMemberIdError: Advice("the group has active members by now", "stop them and try again"),
    errors.RebalanceInProgressError: Advice("the group is rebalancing", "stop its members and try again"),
    errors.TopicAuthorizationFailedError: Advice("not authorized for it", _AUTHORIZE),
    errors.GroupAuthorizationFailedError: Advice("not authorized for it", _AUTHORIZE),
    errors.ClusterAuthorizationFailedError: Advice("not authorized for the cluster", _AUTHORIZE),
    errors.TransactionalIdAuthorizationFailedError: Advice("not authorized for it", _AUTHORIZE),
    errors.DelegationTokenAuthorizationFailedError: Advice("not authorized for the token", _AUTHORIZE),
    errors.InvalidTimestampError: Advice(
        "a timestamp is too far from the broker's clock",
        "see message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    ),
    errors.TopicAlreadyExistsError: Advice("it exists already", "describe it to see whether it will do"),
    errors.InvalidPartitionsError: Advice(
        "that number of partitions cannot be",
        "give one above 0, and above what there are: partitions are never taken away",
    ),
    errors.InvalidReplicationFactorError: Advice(
        "that number of replicas cannot be", "give at most as many as there are brokers"
    ),
    errors.InvalidReplicaAssignmentError: Advice(
        "those brokers cannot hold it", "name brokers of this cluster, each once"
    ),
    errors.InvalidConfigError: Advice(
        "a setting cannot be so", "Admin.describe_configs(…, documentation=True) explains each"
    ),
    errors.NotControllerError: Advice("the controller moved", "try again"),
    errors.InvalidRequestError: Advice("the broker does not take the request so", "its log has the reason"),
    errors.PolicyViolationError: Advice(
        "a policy of the cluster forbids it", "ask the administrator who set create.topic.policy or alter.config.policy"
    ),
    errors.InvalidProducerEpochError: Advice(
        "its producer has a newer epoch by now", "look again with `braidlog transactions producers`"
    ),
    errors.InvalidTxnStateError: Advice(
        "its transaction is in a state that does not allow this",
        "look again with `braidlog transactions describe`",
    ),
    errors.ConcurrentTransactionsError: Advice("its transaction before is still being ended", "try again"),
    errors.TransactionCoordinatorFencedError: Advice(
        "a newer coordinator has ended a transaction here meanwhile",
        "look again with `braidlog transactions producers`",
    ),
    errors.SecurityDisabledError: Advice(
        "the cluster has no authorizer", "set authorizer.class.name on its brokers and controllers"
    ),
    errors.OperationNotAttemptedError: Advice("another part of the request failed", "mend that, then try again"),
    errors.KafkaStorageError: Advice(
        "the disk under it failed", "the broker's log names it, `braidlog doctor` explains"
    ),
    errors.LogDirNotFoundError: Advice(
        "the broker has no such directory", "describe its log dirs to see which there are"
    ),
    errors.ReassignmentInProgressError: Advice("it is being moved", "wait for that to end, or cancel it"),
    errors.DelegationTokenAuthDisabledError: Advice(
        "delegation tokens are switched off", "set delegation.token.secret.key on the brokers and controllers"
    ),
    errors.DelegationTokenNotFoundError: Advice("there is no such token", "describe the tokens to see which there are"),
    errors.DelegationTokenOwnerMismatchError: Advice(
        "the token belongs to another user", "its owner or one of its renewers has to ask"
    ),
    errors.DelegationTokenRequestNotAllowedError: Advice(
        "tokens are not given over this connection", "connect with SASL or mutual TLS, not with a token"
    ),
    errors.DelegationTokenExpiredError: Advice("the token has expired", "create a new one"),
    errors.InvalidPrincipalTypeError: Advice("there are no such principals", "use User"),
    errors.NonEmptyGroupError: Advice(
        "it has active members", "stop them first (Admin.describe_groups shows who they are)"
    ),
    errors.GroupIdNotFoundError: Advice("it does not exist", "`braidlog groups list` shows what does"),
    errors.TopicDeletionDisabledError: Advice("the broker has delete.topic.enable=false", "change that first"),
    errors.UnsupportedCompressionTypeError: Advice(
        "the topic or broker does not take this compression", "choose another"
    ),
    errors.PreferredLeaderNotAvailableError: Advice(
        "the first of its replicas is not in sync", "see that its broker runs and keeps up"
    ),
    errors.EligibleLeadersNotAvailableError: Advice("none of its replicas is alive", "start the brokers that hold it"),
    errors.ElectionNotNeededError: Advice("it is led as it should be", "nothing has to be done"),
    errors.NoReassignmentInProgressError: Advice("it is not being moved", "there is nothing to cancel"),
    errors.GroupSubscribedToTopicError: Advice(
        "the group is reading this topic",
        "stop its members first (Admin.describe_groups shows who they are)",
    ),
    errors.InvalidRecordError: Advice("a record is not what the topic takes", "a compacted topic needs keys"),
    errors.ThrottlingQuotaExceededError: Advice(
        "too many changes at once for the quota of this client", "wait a moment and try again"
    ),
    errors.ResourceNotFoundError: Advice("there is nothing of that name", "describe all to see what there is"),
    errors.DuplicateResourceError: Advice("it is named twice", "name each once"),
    errors.UnacceptableCredentialError: Advice(
        "such a credential is not taken", "give a name, a password, and between 4096 and 16384 iterations"
    ),
    errors.InvalidUpdateVersionError: Advice(
        "the feature cannot have that level", "describe the features to see which levels all brokers support"
    ),
    errors.FeatureUpdateFailedError: Advice("the controller could not store it", "its log has the reason"),
    errors.TransactionalIdNotFoundError: Advice("it does not exist", "`braidlog transactions list` shows what does"),
    errors.FencedInstanceIdError: Advice(
        "another member has taken that instance id over", "describe the group to see who is in it"
    ),
}
_BY_CODE: Final = {kind.code: advice for kind, advice in _ADVICE.items()}
_NOTHING_KNOWN: Final = Advice("")


def check(error_code: int, what: str, message: str | None = None) -> None:
    """Raise the protocol's error, with what it was about."""
    if error_code != NONE:
        raise broker_error(error_code, what, message)


def broker_error(error_code: int, what: str, message: str | None = None) -> ProtocolError:
    error = from_code(error_code)
    known = _BY_CODE.get(error_code, _NOTHING_KNOWN)
    fact = message or known.fact
    # A reason that goes on after a semicolon says itself what to do.
    if fact and known.next and ";" not in fact:
        fact = f"{fact.rstrip('.')}; {known.next}"
    return type(error)(f"{what}: {fact}" if fact else what)
