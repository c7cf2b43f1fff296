"""One exception per Kafka protocol error code.

Handlers raise these and `broker.dispatch` alone turns them into a response; clients raise what a response carries.
The three families a reader should keep apart:

    ProtocolError   the peer asked for something it may not have, or must retry: every class below
    StorageFault    the disk's fault; reaches clients as KAFKA_STORAGE_ERROR (see `core.errors`)
    anything else   our bug; reaches clients as UNKNOWN_SERVER_ERROR and the log with its traceback
"""

from __future__ import annotations

from typing import ClassVar

NONE = 0

# Characters of a message: names that clients chose may be in it, and no text of the protocol has more than 32767 bytes.
_LONGEST_MESSAGE = 2_000


class ProtocolError(Exception):
    """A failure that the protocol has a code for; the message tells a person what to do next."""

    code: ClassVar[int] = -1
    name: ClassVar[str] = "UNKNOWN_SERVER_ERROR"
    retriable: ClassVar[bool] = False

    @property
    def message(self) -> str | None:
        """What the response's error_message carries; none where nothing beyond the code was said."""
        return _shortened(str(self.args[0])) if self.args else None

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.args else self.name


def _shortened(text: str) -> str:
    """Cut in the middle, where a long name stands: what went wrong is said around it."""
    if len(text) <= _LONGEST_MESSAGE:
        return text
    half = _LONGEST_MESSAGE // 2
    return f"{text[:half]} … {text[-half:]}"


class UnknownServerError(ProtocolError):
    code = -1
    name = "UNKNOWN_SERVER_ERROR"


class OffsetOutOfRangeError(ProtocolError):
    code = 1
    name = "OFFSET_OUT_OF_RANGE"


class CorruptMessageError(ProtocolError):
    code = 2
    name = "CORRUPT_MESSAGE"
    retriable = True


class UnknownTopicOrPartitionError(ProtocolError):
    code = 3
    name = "UNKNOWN_TOPIC_OR_PARTITION"
    retriable = True


class InvalidFetchSizeError(ProtocolError):
    code = 4
    name = "INVALID_FETCH_SIZE"


class LeaderNotAvailableError(ProtocolError):
    code = 5
    name = "LEADER_NOT_AVAILABLE"
    retriable = True


class NotLeaderOrFollowerError(ProtocolError):
    code = 6
    name = "NOT_LEADER_OR_FOLLOWER"
    retriable = True


class RequestTimedOutError(ProtocolError):
    code = 7
    name = "REQUEST_TIMED_OUT"
    retriable = True


class BrokerNotAvailableError(ProtocolError):
    code = 8
    name = "BROKER_NOT_AVAILABLE"


class ReplicaNotAvailableError(ProtocolError):
    code = 9
    name = "REPLICA_NOT_AVAILABLE"
    retriable = True


class MessageTooLargeError(ProtocolError):
    code = 10
    name = "MESSAGE_TOO_LARGE"


class StaleControllerEpochError(ProtocolError):
    code = 11
    name = "STALE_CONTROLLER_EPOCH"


class OffsetMetadataTooLargeError(ProtocolError):
    code = 12
    name = "OFFSET_METADATA_TOO_LARGE"


class NetworkError(ProtocolError):
    code = 13
    name = "NETWORK_EXCEPTION"
    retriable = True


class CoordinatorLoadInProgressError(ProtocolError):
    code = 14
    name = "COORDINATOR_LOAD_IN_PROGRESS"
    retriable = True


class CoordinatorNotAvailableError(ProtocolError):
    code = 15
    name = "COORDINATOR_NOT_AVAILABLE"
    retriable = True


class NotCoordinatorError(ProtocolError):
    code = 16
    name = "NOT_COORDINATOR"
    retriable = True


class InvalidTopicError(ProtocolError):
    code = 17
    name = "INVALID_TOPIC_EXCEPTION"


class RecordListTooLargeError(ProtocolError):
    code = 18
    name = "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicasError(ProtocolError):
    code = 19
    name = "NOT_ENOUGH_REPLICAS"
    retriable = True


class NotEnoughReplicasAfterAppendError(ProtocolError):
    code = 20
    name = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"
    retriable = True


class InvalidRequiredAcksError(ProtocolError):
    code = 21
    name = "INVALID_REQUIRED_ACKS"


class IllegalGenerationError(ProtocolError):
    code = 22
    name = "ILLEGAL_GENERATION"


class InconsistentGroupProtocolError(ProtocolError):
    code = 23
    name = "INCONSISTENT_GROUP_PROTOCOL"


class InvalidGroupIdError(ProtocolError):
    code = 24
    name = "INVALID_GROUP_ID"


class UnknownMemberIdError(ProtocolError):
    code = 25
    name = "UNKNOWN_MEMBER_ID"


class InvalidSessionTimeoutError(ProtocolError):
    code = 26
    name = "INVALID_SESSION_TIMEOUT"


class RebalanceInProgressError(ProtocolError):
    code = 27
    name = "REBALANCE_IN_PROGRESS"


class InvalidCommitOffsetSizeError(ProtocolError):
    code = 28
    name = "INVALID_COMMIT_OFFSET_SIZE"


class TopicAuthorizationFailedError(ProtocolError):
    code = 29
    name = "TOPIC_AUTHORIZATION_FAILED"


class GroupAuthorizationFailedError(ProtocolError):
    code = 30
    name = "GROUP_AUTHORIZATION_FAILED"


class ClusterAuthorizationFailedError(ProtocolError):
    code = 31
    name = "CLUSTER_AUTHORIZATION_FAILED"


class InvalidTimestampError(ProtocolError):
    code = 32
    name = "INVALID_TIMESTAMP"


class UnsupportedSaslMechanismError(ProtocolError):
    code = 33
    name = "UNSUPPORTED_SASL_MECHANISM"


class IllegalSaslStateError(ProtocolError):
    code = 34
    name = "ILLEGAL_SASL_STATE"


class UnsupportedVersionError(ProtocolError):
    code = 35
    name = "UNSUPPORTED_VERSION"


class TopicAlreadyExistsError(ProtocolError):
    code = 36
    name = "TOPIC_ALREADY_EXISTS"


class InvalidPartitionsError(ProtocolError):
    code = 37
    name = "INVALID_PARTITIONS"


class InvalidReplicationFactorError(ProtocolError):
    code = 38
    name = "INVALID_REPLICATION_FACTOR"


class InvalidReplicaAssignmentError(ProtocolError):
    code = 39
    name = "INVALID_REPLICA_ASSIGNMENT"


class InvalidConfigError(ProtocolError):
    code = 40
    name = "INVALID_CONFIG"


class NotControllerError(ProtocolError):
    code = 41
    name = "NOT_CONTROLLER"
    retriable = True


class InvalidRequestError(ProtocolError):
    code = 42
    name = "INVALID_REQUEST"


class UnsupportedForMessageFormatError(ProtocolError):
    code = 43
    name = "UNSUPPORTED_FOR_MESSAGE_FORMAT"


class PolicyViolationError(ProtocolError):
    code = 44
    name = "POLICY_VIOLATION"


class OutOfOrderSequenceNumberError(ProtocolError):
    code = 45
    name = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequenceNumberError(ProtocolError):
    code = 46
    name = "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpochError(ProtocolError):
    code = 47
    name = "INVALID_PRODUCER_EPOCH"


class InvalidTxnStateError(ProtocolError):
    code = 48
    name = "INVALID_TXN_STATE"


class InvalidProducerIdMappingError(ProtocolError):
    code = 49
    name = "INVALID_PRODUCER_ID_MAPPING"


class InvalidTransactionTimeoutError(ProtocolError):
    code = 50
    name = "INVALID_TRANSACTION_TIMEOUT"


class ConcurrentTransactionsError(ProtocolError):
    code = 51
    name = "CONCURRENT_TRANSACTIONS"
    retriable = True


class TransactionCoordinatorFencedError(ProtocolError):
    code = 52
    name = "TRANSACTION_COORDINATOR_FENCED"


class TransactionalIdAuthorizationFailedError(ProtocolError):
    code = 53
    name = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class SecurityDisabledError(ProtocolError):
    code = 54
    name = "SECURITY_DISABLED"


class OperationNotAttemptedError(ProtocolError):
    code = 55
    name = "OPERATION_NOT_ATTEMPTED"


class KafkaStorageError(ProtocolError):
    code = 56
    name = "KAFKA_STORAGE_ERROR"
    retriable = True


class LogDirNotFoundError(ProtocolError):
    code = 57
    name = "LOG_DIR_NOT_FOUND"


class SaslAuthenticationFailedError(ProtocolError):
    code = 58
    name = "SASL_AUTHENTICATION_FAILED"


class UnknownProducerIdError(ProtocolError):
    code = 59
    name = "UNKNOWN_PRODUCER_ID"


class ReassignmentInProgressError(ProtocolError):
    code = 60
    name = "REASSIGNMENT_IN_PROGRESS"


class DelegationTokenAuthDisabledError(ProtocolError):
    code = 61
    name = "DELEGATION_TOKEN_AUTH_DISABLED"


class DelegationTokenNotFoundError(ProtocolError):
    code = 62
    name = "DELEGATION_TOKEN_NOT_FOUND"


class DelegationTokenOwnerMismatchError(ProtocolError):
    code = 63
    name = "DELEGATION_TOKEN_OWNER_MISMATCH"


class DelegationTokenRequestNotAllowedError(ProtocolError):
    code = 64
    name = "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED"


class DelegationTokenAuthorizationFailedError(ProtocolError):
    code = 65
    name = "DELEGATION_TOKEN_AUTHORIZATION_FAILED"


class DelegationTokenExpiredError(ProtocolError):
    code = 66
    name = "DELEGATION_TOKEN_EXPIRED"


class InvalidPrincipalTypeError(ProtocolError):
    code = 67
    name = "INVALID_PRINCIPAL_TYPE"


class NonEmptyGroupError(ProtocolError):
    code = 68
    name = "NON_EMPTY_GROUP"


class GroupIdNotFoundError(ProtocolError):
    code = 69
    name = "GROUP_ID_NOT_FOUND"


class FetchSessionIdNotFoundError(ProtocolError):
    code = 70
    name = "FETCH_SESSION_ID_NOT_FOUND"
    retriable = True


class InvalidFetchSessionEpochError(ProtocolError):
    code = 71
    name = "INVALID_FETCH_SESSION_EPOCH"
    retriable = True


class ListenerNotFoundError(ProtocolError):
    code = 72
    name = "LISTENER_NOT_FOUND"
    retriable = True


class TopicDeletionDisabledError(ProtocolError):
    code = 73
    name = "TOPIC_DELETION_DISABLED"


class FencedLeaderEpochError(ProtocolError):
    code = 74
    name = "FENCED_LEADER_EPOCH"
    retriable = True


class UnknownLeaderEpochError(ProtocolError):
    code = 75
    name = "UNKNOWN_LEADER_EPOCH"
    retriable = True


class UnsupportedCompressionTypeError(ProtocolError):
    code = 76
    name = "UNSUPPORTED_COMPRESSION_TYPE"


class StaleBrokerEpochError(ProtocolError):
    code = 77
    name = "STALE_BROKER_EPOCH"


class OffsetNotAvailableError(ProtocolError):
    code = 78
    name = "OFFSET_NOT_AVAILABLE"
    retriable = True


class MemberIdRequiredError(ProtocolError):
    code = 79
    name = "MEMBER_ID_REQUIRED"


class PreferredLeaderNotAvailableError(ProtocolError):
    code = 80
    name = "PREFERRED_LEADER_NOT_AVAILABLE"
    retriable = True


class GroupMaxSizeReachedError(ProtocolError):
    code = 81
    name = "GROUP_MAX_SIZE_REACHED"


class FencedInstanceIdError(ProtocolError):
    code = 82
    name = "FENCED_INSTANCE_ID"


class EligibleLeadersNotAvailableError(ProtocolError):
    code = 83
    name = "ELIGIBLE_LEADERS_NOT_AVAILABLE"
    retriable = True


class ElectionNotNeededError(ProtocolError):
    code = 84
    name = "ELECTION_NOT_NEEDED"
    retriable = True


class NoReassignmentInProgressError(ProtocolError):
    code = 85
    name = "NO_REASSIGNMENT_IN_PROGRESS"


class GroupSubscribedToTopicError(ProtocolError):
    code = 86
    name = "GROUP_SUBSCRIBED_TO_TOPIC"


class InvalidRecordError(ProtocolError):
    code = 87
    name = "INVALID_RECORD"


class UnstableOffsetCommitError(ProtocolError):
    code = 88
    name = "UNSTABLE_OFFSET_COMMIT"
    retriable = True


class ThrottlingQuotaExceededError(ProtocolError):
    code = 89
    name = "THROTTLING_QUOTA_EXCEEDED"
    retriable = True


class ProducerFencedError(ProtocolError):
    code = 90
    name = "PRODUCER_FENCED"


class ResourceNotFoundError(ProtocolError):
    code = 91
    name = "RESOURCE_NOT_FOUND"


class DuplicateResourceError(ProtocolError):
    code = 92
    name = "DUPLICATE_RESOURCE"


class UnacceptableCredentialError(ProtocolError):
    code = 93
    name = "UNACCEPTABLE_CREDENTIAL"


class InconsistentVoterSetError(ProtocolError):
    code = 94
    name = "INCONSISTENT_VOTER_SET"


class InvalidUpdateVersionError(ProtocolError):
    code = 95
    name = "INVALID_UPDATE_VERSION"


class FeatureUpdateFailedError(ProtocolError):
    code = 96
    name = "FEATURE_UPDATE_FAILED"


class PrincipalDeserializationFailureError(ProtocolError):
    code = 97
    name = "PRINCIPAL_DESERIALIZATION_FAILURE"


class SnapshotNotFoundError(ProtocolError):
    code = 98
    name = "SNAPSHOT_NOT_FOUND"


class UnknownTopicIdError(ProtocolError):
    code = 100
    name = "UNKNOWN_TOPIC_ID"
    retriable = True


class DuplicateBrokerRegistrationError(ProtocolError):
    code = 101
    name = "DUPLICATE_BROKER_REGISTRATION"


class BrokerIdNotRegisteredError(ProtocolError):
    code = 102
    name = "BROKER_ID_NOT_REGISTERED"


class InconsistentTopicIdError(ProtocolError):
    code = 103
    name = "INCONSISTENT_TOPIC_ID"
    retriable = True


class InconsistentClusterIdError(ProtocolError):
    code = 104
    name = "INCONSISTENT_CLUSTER_ID"


class TransactionalIdNotFoundError(ProtocolError):
    code = 105
    name = "TRANSACTIONAL_ID_NOT_FOUND"


class FetchSessionTopicIdError(ProtocolError):
    code = 106
    name = "FETCH_SESSION_TOPIC_ID_ERROR"
    retriable = True


class IneligibleReplicaError(ProtocolError):
    code = 107
    name = "INELIGIBLE_REPLICA"


class NewLeaderElectedError(ProtocolError):
    code = 108
    name = "NEW_LEADER_ELECTED"


class OffsetMovedToTieredStorageError(ProtocolError):
    code = 109
    name = "OFFSET_MOVED_TO_TIERED_STORAGE"


class FencedMemberEpochError(ProtocolError):
    code = 110
    name = "FENCED_MEMBER_EPOCH"


class UnreleasedInstanceIdError(ProtocolError):
    code = 111
    name = "UNRELEASED_INSTANCE_ID"


class UnsupportedAssignorError(ProtocolError):
    code = 112
    name = "UNSUPPORTED_ASSIGNOR"


class StaleMemberEpochError(ProtocolError):
    code = 113
    name = "STALE_MEMBER_EPOCH"


class MismatchedEndpointTypeError(ProtocolError):
    code = 114
    name = "MISMATCHED_ENDPOINT_TYPE"


class UnsupportedEndpointTypeError(ProtocolError):
    code = 115
    name = "UNSUPPORTED_ENDPOINT_TYPE"


class UnknownControllerIdError(ProtocolError):
    code = 116
    name = "UNKNOWN_CONTROLLER_ID"


class UnknownSubscriptionIdError(ProtocolError):
    code = 117
    name = "UNKNOWN_SUBSCRIPTION_ID"


class TelemetryTooLargeError(ProtocolError):
    code = 118
    name = "TELEMETRY_TOO_LARGE"


class InvalidRegistrationError(ProtocolError):
    code = 119
    name = "INVALID_REGISTRATION"


class TransactionAbortableError(ProtocolError):
    code = 120
    name = "TRANSACTION_ABORTABLE"


class InvalidRecordStateError(ProtocolError):
    code = 121
    name = "INVALID_RECORD_STATE"


class ShareSessionNotFoundError(ProtocolError):
    code = 122
    name = "SHARE_SESSION_NOT_FOUND"
    retriable = True


class InvalidShareSessionEpochError(ProtocolError):
    code = 123
    name = "INVALID_SHARE_SESSION_EPOCH"
    retriable = True


class FencedStateEpochError(ProtocolError):
    code = 124
    name = "FENCED_STATE_EPOCH"


class InvalidVoterKeyError(ProtocolError):
    code = 125
    name = "INVALID_VOTER_KEY"


class DuplicateVoterError(ProtocolError):
    code = 126
    name = "DUPLICATE_VOTER"


class VoterNotFoundError(ProtocolError):
    code = 127
    name = "VOTER_NOT_FOUND"


class InvalidRegularExpressionError(ProtocolError):
    code = 128
    name = "INVALID_REGULAR_EXPRESSION"


BY_CODE: dict[int, type[ProtocolError]] = {error.code: error for error in ProtocolError.__subclasses__()}


def name_of(code: int) -> str:
    """The protocol's name of an error code, for people: `NONE`, `NOT_LEADER_OR_FOLLOWER`, …"""
    if code == NONE:
        return "NONE"
    known = BY_CODE.get(code)
    return known.name if known is not None else f"UNKNOWN_ERROR_CODE_{code}"


def from_code(code: int, message: str | None = None) -> ProtocolError:
    """The exception for a code that a peer answered with; an unknown code becomes UNKNOWN_SERVER_ERROR."""
    error = BY_CODE.get(code, UnknownServerError)
    return error(message) if message else error()
