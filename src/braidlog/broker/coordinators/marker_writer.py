"""Writes the control batches that end transactions into the partitions of this broker.

A partition of `__consumer_offsets` has a shard that must learn of the end in the same step, so its coordinator writes
the marker there; everywhere else it is an append like any other, committed with its round.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from braidlog.broker.coordinators.internal_topics import OFFSETS_TOPIC
from braidlog.broker.requests.error_mapping import to_protocol_error
from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
    NotLeaderOrFollowerError,
    ProtocolError,
)
from braidlog.core.slices import ByteSlice
from braidlog.core.types import TopicPartition
from braidlog.replication.group_commit import AppendAck, Committer
from braidlog.replication.partition import ACKS_ALL
from braidlog.replication.partition_registry import PartitionRegistry
from braidlog.wire.records.builder import build_marker
from braidlog.wire.records.validation import LATEST_PRODUCE_VERSION, ORIGIN_COORDINATOR

# Told of each partition once: None when its marker is committed.
MarkerDone = Callable[[TopicPartition, ProtocolError | None], None]

# Whoever ends transactions waits for a leader, but knows nothing of group coordinators.
_NOT_READY: Final = (
    CoordinatorLoadInProgressError.code,
    CoordinatorNotAvailableError.code,
    NotCoordinatorError.code,
)


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


class MarkerWriter:
    def __init__(self, registry: PartitionRegistry, committer: Committer, clock: Clock, offsets: OffsetMarkers) -> None:
        self._registry = registry
        self._committer = committer
        self._clock = clock
        self._offsets = offsets

    def write(
        self,
        producer_id: int,
        producer_epoch: int,
        commits: bool,
        coordinator_epoch: int,
        partitions: list[TopicPartition],
        done: MarkerDone,
    ) -> None:
        """Each partition is told of on its own: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER (try again),
        INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED (never), KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS.
        """
        batch = build_marker(
            commit=commits,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp=self._clock.wall_ms(),
            coordinator_epoch=coordinator_epoch,
        )
        for target in partitions:
            if target.topic == OFFSETS_TOPIC and self._registry.get(target.topic, target.partition) is not None:
                self._offsets.complete_transaction(
                    target.partition,
                    producer_id,
                    producer_epoch,
                    commits,
                    coordinator_epoch,
                    _for_offsets(target, done),
                )
            else:
                self._append(target, batch, done)

    def _append(self, target: TopicPartition, batch: bytes, done: MarkerDone) -> None:
        try:
            partition = self._registry.require(target.topic, target.partition)
            self._committer.append(
                partition,
                ByteSlice(batch, 0, len(batch)),
                AppendAck(partial(done, target)),
                ACKS_ALL,
                LATEST_PRODUCE_VERSION,
                self._clock.wall_ms(),
                ORIGIN_COORDINATOR,
            )
        except Exception as problem:
            done(target, to_protocol_error(problem, f"marker of a transaction for {target}"))


def _for_offsets(target: TopicPartition, done: MarkerDone) -> Callable[[ProtocolError | None], None]:
    def written(error: ProtocolError | None) -> None:
        if error is not None and error.code in _NOT_READY:
            error = NotLeaderOrFollowerError(error.message)
        done(target, error)

    return written
