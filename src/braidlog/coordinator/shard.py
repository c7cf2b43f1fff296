"""What the runtime asks of a shard, whatever it keeps: to be rebuilt by replay, to mind its deadlines, to let go."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from braidlog.coordinator.effects import Effects, Moment
from braidlog.core.errors import BraidlogError
from braidlog.core.protocol_errors import ProtocolError


class ReplayedRecord(NamedTuple):
    """A record of the shard's partition, as it was written."""

    offset: int
    timestamp: int
    key: bytes
    value: bytes | None
    # Of the transaction it belongs to; -1 outside of one.
    producer_id: int = -1
    producer_epoch: int = -1


class UnknownRecordTypeError(BraidlogError):
    """A record whose key has a version that this shard does not know: skipped when a partition is loaded."""

    def __init__(self, version: int) -> None:
        super().__init__(f"records of kind {version} are unknown")
        self.version = version


class CoordinatorShard(Protocol):
    """The state of one partition; every method is pure but for that state."""

    def replay(self, record: ReplayedRecord) -> None:
        """Take a record into the state.

        Raises UnknownRecordTypeError, or MalformedError where its bytes make no sense: the loader adds file and offset,
        and the shard stays unavailable.
        """
        ...

    def replay_end_transaction_marker(self, producer_id: int, producer_epoch: int, commits: bool) -> None:
        """A transaction that wrote records here has ended."""
        ...

    def on_loaded(self, now: Moment) -> Effects:
        """The whole partition is replayed: arm deadlines, go on with what was under way."""
        ...

    def next_deadline(self) -> float | None:
        """When `expire` wants to be called (monotonic seconds)."""
        ...

    def expire(self, now: Moment) -> Effects:
        """What the passing of time does: members that fell silent, joins that are complete, old offsets."""
        ...

    def on_unloaded(self, error: ProtocolError) -> Effects:
        """The shard goes away (its partition moved, its log failed): replies for all requests that wait, no records."""
        ...
