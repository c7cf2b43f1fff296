"""Writes the control batches that end transactions into the partitions of this broker.

A partition of `__consumer_offsets` has a shard that must learn of the end in the same step, so its coordinator writes
the marker there; everywhere else it is an append like any other, committed with its round.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.config.topic_names import OFFSETS_TOPIC
from braidlog.coordinator.effects import SendMarkers
from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import ProtocolError, RequestTimedOutError
from braidlog.core.slices import ByteSlice
from braidlog.core.timeout_queue import TimeoutQueue
from braidlog.core.types import TopicPartition
from braidlog.replication.group_commit import Committer
from braidlog.replication.partition import ACKS_ALL
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.replication.pending_ack import AppendAck
from braidlog.wire.records.control_records import build_end_txn_marker
from braidlog.wire.records.validation import LATEST_PRODUCE_VERSION, ORIGIN_COORDINATOR

# Called once for each partition: with None when its marker is committed.
MarkerDone = Callable[[TopicPartition, ProtocolError | None], None]


class OffsetMarkers(Protocol):
    """How a marker gets into a partition of `__consumer_offsets` and its shard: the group coordinator's runtime."""

    def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        commits: bool,
        coordinator_epoch: int,
        done: Callable[[ProtocolError | None], None],
    ) -> None: ...


class _PendingMarker:
    """A marker that is written, and waits to be committed."""

    __slots__ = ("_on_written", "done")

    def __init__(self, on_written: Callable[[ProtocolError | None], None]) -> None:
        self._on_written = on_written
        self.done = False

    def finish(self, error: ProtocolError | None) -> None:
        if not self.done:
            self.done = True
            self._on_written(error)

    def time_out(self) -> None:
        """It stays in the log; one that is written again does no harm."""
        self.finish(RequestTimedOutError("the marker is written, but not enough replicas have it yet; try again"))


class MarkerWriter:
    def __init__(
        self,
        registry: PartitionRegistry,
        committer: Committer,
        clock: Clock,
        offsets: OffsetMarkers,
        timeouts: TimeoutQueue,
    ) -> None:
        """`timeouts` ends the waits for markers in partitions that have no shard; the others' are the runtime's."""
        self._registry = registry
        self._committer = committer
        self._clock = clock
        self._offsets = offsets
        self._timeouts = timeouts

    def write(self, markers: SendMarkers, done: MarkerDone) -> None:
        """Each partition has its own result: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (try again),
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED (never), KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS,
        REQUEST_TIMED_OUT, UNSUPPORTED_FOR_MESSAGE_FORMAT (the topic cannot have markers).
        """
        producer_id, producer_epoch, commits = markers.producer_id, markers.producer_epoch, markers.commits
        now_ms = self._clock.wall_ms()
        batch = build_end_txn_marker(
            commit=commits,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=now_ms,
            coordinator_epoch=markers.coordinator_epoch,
        )
        for target in markers.partitions:
            on_written = partial(done, target)
            if target.topic == OFFSETS_TOPIC and self._registry.get(target.topic, target.partition) is not None:
                self._offsets.complete_transaction(
                    target.partition, producer_id, producer_epoch, commits, markers.coordinator_epoch, on_written
                )
                continue
            marker = _PendingMarker(on_written)
            try:
                self._committer.append(
                    self._registry.require(target.topic, target.partition),
                    ByteSlice(batch, 0, len(batch)),
                    AppendAck(marker.finish),
                    ACKS_ALL,
                    LATEST_PRODUCE_VERSION,
                    now_ms,
                    ORIGIN_COORDINATOR,
                )
            except Exception as problem:
                done(target, to_protocol_error(problem, f"marker of a transaction for {target}"))
            else:
                self._timeouts.add(marker)
