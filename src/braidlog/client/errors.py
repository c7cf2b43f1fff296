"""What can go wrong in a client beside the codes that brokers answer with (those are `core.protocol_errors`).

ClientError              something a program may meet and handle
  …                      those of connections (`net.outbound.errors`), of every client, the producer's, the consumer's
UserError                a setting or an argument is wrong (`core.errors`): the program has to change
"""

from __future__ import annotations

from braidlog.core.errors import UserError
from braidlog.core.types import TopicPartition
from braidlog.net.outbound.errors import AuthenticationFailed as AuthenticationFailed
from braidlog.net.outbound.errors import ClientError as ClientError
from braidlog.net.outbound.errors import ClosedError as ClosedError
from braidlog.net.outbound.errors import NoConnection as NoConnection
from braidlog.net.outbound.errors import RequestTimeout as RequestTimeout


class ConcurrentUseError(ClientError):
    """Two threads used an object that belongs to one at a time."""


class WakeupError(ClientError):
    """`wakeup()` interrupted the call."""


class SettingError(UserError):
    """There is no such setting, or it has a value that it cannot have."""


class ArgumentError(UserError, TypeError):
    """An argument of a call is of another kind than the call takes."""


# The producer's


class SerializationError(ClientError):
    """A key or value could not be turned into bytes, or back."""


class BufferFullError(ClientError):
    """`buffer.memory` stayed full for `max.block.ms`."""

    retriable = True


class RecordTooLargeError(ClientError):
    """A record that no request may carry."""


class DeliveryTimeoutError(ClientError):
    """A record was not acknowledged within `delivery.timeout.ms`."""

    retriable = True


class AbortableError(ClientError):
    """The transaction cannot be committed; abort it and begin another."""


class ProducerFailedError(ClientError):
    """The producer cannot go on; close it and make a new one."""


class FencedProducerError(ProducerFailedError):
    """Another producer with the same transactional id took over, or its transaction timed out."""


class TransactionStateError(ClientError):
    """The call does not fit what the transaction is doing."""


# The consumer's


class NoOffsetError(ClientError):
    """There is no committed offset and no reset policy, or the position is out of range with none."""

    def __init__(self, message: str, partition: TopicPartition | None = None, offset: int = -1) -> None:
        super().__init__(message)
        self.partition = partition
        # The one that the log does not have; -1 where there was none.
        self.offset = offset


class LogTruncatedError(ClientError):
    """The log was cut below the position: what was read there is no longer what the log holds."""

    def __init__(
        self, message: str, partition: TopicPartition | None = None, position: int = -1, diverging_offset: int = -1
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.position = position
        # The first that may hold something else than was read; -1 where the leader does not know.
        self.diverging_offset = diverging_offset


class CommitFailedError(ClientError):
    """The group went on without this member, so its offsets were not committed."""


class PoisonRecordError(ClientError):
    """A record that cannot be read; the position stays before it."""

    def __init__(
        self, message: str, partition: TopicPartition | None = None, offset: int = -1, resume_at: int = -1
    ) -> None:
        super().__init__(message)
        self.partition = partition
        self.offset = offset
        # Where to seek in order to leave it out.
        self.resume_at = resume_at


class HandlerFailedError(ClientError):
    """A handler of a ParallelConsumer failed for good; `record` is what it had, `__cause__` what it raised."""

    def __init__(self, message: str, record: object = None) -> None:
        super().__init__(message)
        self.record = record
