"""Follows the markers that end a transaction, until every partition has its own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from braidlog.broker.coordinators.marker_writer import MarkerDone
from braidlog.coordinator.effects import SendMarkers
from braidlog.coordinator.runtime import CoordinatorRuntime
from braidlog.core.protocol_errors import (
    InvalidProducerEpochError,
    ProducerFencedError,
    ProtocolError,
    TransactionCoordinatorFencedError,
    UnknownTopicOrPartitionError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.message import Message

if TYPE_CHECKING:
    # Imported with the first shard: a broker without transactions starts without them.
    from braidlog.coordinator.txn.shard import TransactionCoordinatorShard

log = logging.getLogger("braidlog.transactions")

CallLater = Callable[[float, Callable[[], None]], Any]

# Between tries to write markers, in seconds.
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0


class _NoResponder:
    """For operations without a request; a coordinator that lost its partition leaves the rest to the next one."""

    def answer(self, response: Message) -> None:
        pass

    def fail(self, error: ProtocolError) -> None:
        log.debug("left to the next coordinator: %s", error)


class _MarkerAttempt:
    """The results so far of one attempt at the markers of a transaction."""

    __slots__ = ("action", "failed", "outstanding", "written")

    def __init__(self, action: SendMarkers) -> None:
        self.action = action
        self.outstanding = len(action.partitions)
        self.written: list[TopicPartition] = []
        self.failed = False


class TransactionMarkerManager:
    def __init__(self, transactions: CoordinatorRuntime[TransactionCoordinatorShard], call_later: CallLater) -> None:
        self._transactions = transactions
        self._call_later = call_later

    def track(self, action: SendMarkers) -> MarkerDone:
        """The callback that gathers the results of an attempt."""
        return partial(self._on_marker_written, _MarkerAttempt(action))

    def _on_marker_written(
        self, attempt: _MarkerAttempt, partition: TopicPartition, error: ProtocolError | None
    ) -> None:
        """The last partition of an attempt reports it to the shard; partitions that may still take it are retried."""
        action = attempt.action
        attempt.outstanding -= 1
        if error is None or isinstance(error, UnknownTopicOrPartitionError):
            # A partition that is gone needs no marker.
            attempt.written.append(partition)
        elif isinstance(error, TransactionCoordinatorFencedError):
            log.error("%s: %s refused the marker, a newer coordinator has written there", action, partition)
        else:
            # Also a partition that has seen a newer epoch is tried again: the producer may come to be forgotten there,
            # or the topic be deleted, and without another try the transactional id would be of no use ever after.
            attempt.failed = True
            if action.attempt == 0:
                log.warning("%s: %s could not be marked yet: %s", action, partition, error)
        if attempt.outstanding:
            return
        written = attempt.written
        self._transactions.submit(
            action.transactional_id, _NoResponder(), lambda shard, now: shard.markers_written(action, written, now)
        )
        if attempt.failed:
            pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(action.attempt, 6))
            self._call_later(pause, lambda: self._retry(action))

    def _retry(self, action: SendMarkers) -> None:
        self._transactions.submit(
            action.transactional_id, _NoResponder(), lambda shard, now: shard.retry_markers(action, now)
        )


def error_code_for_version(error: ProtocolError, version: int, fenced_from: int) -> int:
    """The code for a client of this version; before `fenced_from` there was no PRODUCER_FENCED (KIP-588)."""
    if version < fenced_from and error.code == ProducerFencedError.code:
        return InvalidProducerEpochError.code
    return error.code
