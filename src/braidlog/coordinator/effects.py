"""What an operation on a shard decides: records to append, replies that wait for them, work to do afterwards.

A shard never acts. It looks at its state, decides, and the runtime appends, waits and answers:

    operation -> Effects -> records appended -> replayed into the shard -> committed -> replies, then actions

So the state that matters is what a replay of the partition gives. A reply goes through a `Responder`: a shard may keep
it for as long as it needs (a member that waits for the others to join) and name it in a later operation's effects.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from braidlog.core.protocol_errors import ProtocolError
from braidlog.core.types import TopicPartition
from braidlog.wire.message import Message


class Moment(NamedTuple):
    """Now, for a pure operation: `wall_ms` for what is written down, `monotonic` (seconds) for deadlines."""

    wall_ms: int
    monotonic: float


class Caller(NamedTuple):
    """Who asks, and in which version of the request."""

    version: int
    client_id: str
    host: str


class Responder(Protocol):
    """Sends the reply to one request, exactly once. Shards only keep it and pass it on."""

    def answer(self, response: Message) -> None: ...

    def fail(self, error: ProtocolError) -> None: ...


# Of a batch's header, and at most of a record beside key and value.
_BATCH_OVERHEAD: Final = 61
_RECORD_OVERHEAD: Final = 32
# What time alone makes due is written in batches of about this many bytes, smaller than any log refuses.
MAX_PORTION_BYTES: Final = 128 * 1024


class CoordinatorRecord(NamedTuple):
    """A record to append; a value of None deletes what the key stands for."""

    key: bytes
    value: bytes | None
    # The shard's state has it in it already: the runtime does not replay it, and rebuilds the shard if it cannot be
    # written.
    applied: bool = False

    @property
    def size(self) -> int:
        """How many bytes of a batch it takes at most, before that is compressed."""
        return _RECORD_OVERHEAD + len(self.key) + (0 if self.value is None else len(self.value))


class SendMarkers:
    """The one kind of action: write markers to the partitions of a transaction, once its end is committed.

    The results go to the shard's `markers_written`. `transactional_id` is empty where an administrator ends it.

    The epoch is the one that the markers carry: in transaction version 2 one above that of the data (KIP-890). The
    object itself names the attempt: a result of an earlier one no longer counts.
    """

    __slots__ = (
        "attempt",
        "commits",
        "coordinator_epoch",
        "partitions",
        "producer_epoch",
        "producer_id",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        commits: bool,
        partitions: list[TopicPartition],
        coordinator_epoch: int,
        attempt: int = 0,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.commits = commits
        self.partitions = partitions
        self.coordinator_epoch = coordinator_epoch
        # How often this was tried before: the pause before the next try depends on it.
        self.attempt = attempt

    def __repr__(self) -> str:
        outcome = "commit" if self.commits else "abort"
        return f"<SendMarkers {outcome} {self.transactional_id} {self.producer_id}/{self.producer_epoch}>"


class Effects:
    """One operation's outcome. Records go into one batch, so they become durable together or not at all."""

    __slots__ = ("actions", "producer_epoch", "producer_id", "records", "replies")

    def __init__(self) -> None:
        self.records: list[CoordinatorRecord] = []
        self.replies: list[tuple[Responder, Message | ProtocolError]] = []
        self.actions: list[SendMarkers] = []
        # Set for records that belong to a transaction: they count only once its commit marker is there.
        self.producer_id = -1
        self.producer_epoch = -1

    def write(self, key: bytes, value: bytes | None, *, applied: bool = False) -> None:
        self.records.append(CoordinatorRecord(key, value, applied))

    def is_empty(self) -> bool:
        return not (self.records or self.replies or self.actions)

    def batch_bytes(self) -> int:
        """How large the batch of the records can be before it is compressed."""
        return _BATCH_OVERHEAD + sum(record.size for record in self.records)

    def reply(self, responder: Responder, response: Message | ProtocolError) -> None:
        self.replies.append((responder, response))

    def act(self, action: SendMarkers) -> None:
        self.actions.append(action)

    def add(self, other: Effects) -> None:
        """Take over what another operation, without a transaction, decided."""
        self.records += other.records
        self.replies += other.replies
        self.actions += other.actions
