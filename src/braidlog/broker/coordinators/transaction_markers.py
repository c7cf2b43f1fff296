"""Follows the markers that end a transaction, until every partition has its own.

A partition that nobody here knows of may be gone, or be led by a broker that was told of it more recently: metadata
comes some topics at a time. A marker that is left out for a partition that is there would be one that readers wait for
until the end of days, so the store is asked which it is.
"""

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
    UnsupportedForMessageFormatError,
)
from braidlog.core.types import TopicPartition
from braidlog.wire.message import Message

if TYPE_CHECKING:
    # Imported with the first shard: a broker without transactions starts without them.
    from braidlog.coordinator.txn.shard import TransactionCoordinatorShard

log = logging.getLogger("braidlog.transactions")

CallLater = Callable[[float, Callable[[], None]], Any]
# Calls back whether the cluster has no such partition any more.
IsGone = Callable[[TopicPartition, Callable[[bool], None]], None]

# Between tries to write markers, in seconds.
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
# Of so many tries the first is said to have failed: once a minute.
_SAID_ONE_IN: Final = 12


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
    def __init__(
        self, transactions: CoordinatorRuntime[TransactionCoordinatorShard], call_later: CallLater, is_gone: IsGone
    ) -> None:
        self._transactions = transactions
        self._call_later = call_later
        self._is_gone = is_gone

    def track(self, action: SendMarkers) -> MarkerDone:
        """The callback that gathers the results of an attempt."""
        return partial(self._on_marker_written, _MarkerAttempt(action))

    def _on_marker_written(
        self, attempt: _MarkerAttempt, partition: TopicPartition, error: ProtocolError | None
    ) -> None:
        action = attempt.action
        if isinstance(error, UnknownTopicOrPartitionError):
            self._is_gone(partition, partial(self._on_looked_up, attempt, partition))
            return
        if error is None or isinstance(error, UnsupportedForMessageFormatError):
            # A topic of an old format took no record of the transaction, and needs no marker.
            attempt.written.append(partition)
        elif isinstance(error, TransactionCoordinatorFencedError):
            log.error("%s: %s refused the marker, a newer coordinator has written there", action, partition)
        else:
            # Also a partition that has seen a newer epoch is tried again: the producer may come to be forgotten there,
            # or the topic be deleted, and without another try the transactional id would be of no use ever after.
            attempt.failed = True
            if action.attempt % _SAID_ONE_IN == 0:
                tries = f", after {action.attempt + 1} tries" if action.attempt else ""
                log.warning("%s: %s could not be marked yet%s: %s", action, partition, tries, error)
        self._count(attempt)

    def _on_looked_up(self, attempt: _MarkerAttempt, partition: TopicPartition, is_gone: bool) -> None:
        """A partition that is gone needs no marker; one that was only not known yet gets it at the next try."""
        if is_gone:
            attempt.written.append(partition)
        else:
            attempt.failed = True
        self._count(attempt)

    def _count(self, attempt: _MarkerAttempt) -> None:
        """The last partition of an attempt reports it to the shard; partitions that may still take it are retried."""
        action = attempt.action
        attempt.outstanding -= 1
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
