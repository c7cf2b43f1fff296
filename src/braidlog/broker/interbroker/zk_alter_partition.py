"""ISR changes under a controller that knows no AlterPartition (Kafka before 2.7): the leader stores them by itself.

The state of a partition is written on condition that nobody has changed it since. The controller, and by it the other
brokers, hear of it by a node under /isr_change_notification that names the partitions, seldom enough not to flood it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from braidlog.cluster import paths, records
from braidlog.cluster.image import PartitionInfo
from braidlog.cluster.store import (
    BadVersionError,
    CoordinationStore,
    NoNodeError,
    SessionExpiredError,
    SetData,
    StoreConnectionError,
    StoreError,
)
from braidlog.controller.requests import AlterPartitionResult, PartitionChange
from braidlog.core.clock import Clock
from braidlog.core.protocol_errors import FencedLeaderEpochError
from braidlog.core.tasks import Tasks
from braidlog.core.types import BrokerId, LeaderEpoch, TopicPartition
from braidlog.replication.isr import IsrChangePropagation

log = logging.getLogger("braidlog.partitions")

# States in one transaction of the store, and partitions in one notification.
_AT_A_TIME: Final = 100
_MOST_TOLD: Final = 2000
# How often it is looked whether a notification is due.
_PAUSE_S: Final = 2.5


class ZkAlterPartition:
    def __init__(self, store: Callable[[], CoordinationStore], broker_id: BrokerId, clock: Clock, tasks: Tasks) -> None:
        self._store = store
        self._broker_id = broker_id
        self._clock = clock
        self._tasks = tasks
        self._propagation = IsrChangePropagation(clock.monotonic())
        self._is_propagating = False

    async def alter_partition(self, changes: Sequence[PartitionChange]) -> list[AlterPartitionResult]:
        """Not among the results is what has to be tried again: another has changed it meanwhile, or may have."""
        results: list[AlterPartitionResult] = []
        store = self._store()
        for start in range(0, len(changes), _AT_A_TIME):
            results += await self._alter(store, changes[start : start + _AT_A_TIME])
        return results

    async def _alter(self, store: CoordinationStore, changes: Sequence[PartitionChange]) -> list[AlterPartitionResult]:
        at = [paths.partition_state(*change.partition) for change in changes]
        nodes = await store.get_many(at)
        results: list[AlterPartitionResult] = []
        writes: list[SetData] = []
        stored: list[AlterPartitionResult] = []
        for change, path, node in zip(changes, at, nodes, strict=True):
            where = change.partition
            if node is None or node.stat.version < change.partition_epoch:
                continue  # the server lags behind, or the topic is being deleted
            state = records.decode_partition_state(path, node.data)
            if (state.leader, state.leader_epoch) != (self._broker_id, change.leader_epoch):
                error = FencedLeaderEpochError(
                    f"{where} is led by {state.leader} in epoch {state.leader_epoch}, not in {change.leader_epoch}"
                )
                results.append(AlterPartitionResult(where, error))
                continue
            isr = tuple(each for each, _ in change.isr)
            if node.stat.version > change.partition_epoch or state.isr == isr:
                # By the controller, or by an earlier attempt whose answer was lost.
                results.append(AlterPartitionResult(where, None, _info(state, node.stat.version)))
                self._changed(where)
                continue
            state = state._replace(isr=isr, leader_recovery_state=change.recovery_state)
            writes.append(SetData(path, records.encode_partition_state(state), node.stat.version))
            stored.append(AlterPartitionResult(where, None, _info(state, node.stat.version + 1)))
        if writes:
            store.lease.check()
            try:
                await store.multi(writes)
            except (BadVersionError, NoNodeError) as changed:
                log.debug("ISR changes of %d partitions are decided anew: %s", len(writes), changed)
            else:
                results += stored
                for result in stored:
                    self._changed(result.partition)
        return results

    # Notifications

    def _changed(self, partition: TopicPartition) -> None:
        self._propagation.changed(partition, self._clock.monotonic())
        if not self._is_propagating:
            self._is_propagating = True
            self._tasks.spawn("isr change notifications", self._propagate())

    async def _propagate(self) -> None:
        """As long as there is something to tell."""
        try:
            while self._propagation.pending:
                await asyncio.sleep(_PAUSE_S)
                if not self._propagation.is_due(self._clock.monotonic()):
                    continue
                told = list(self._propagation.pending)[:_MOST_TOLD]
                try:
                    store = self._store()
                    store.lease.check()
                    await store.create(paths.ISR_CHANGE, records.encode_isr_change(told), sequential=True)
                except (StoreError, StoreConnectionError, SessionExpiredError) as problem:
                    log.info("the controller is told of %d ISR changes later: %s", len(told), problem)
                else:
                    self._propagation.told(told, self._clock.monotonic())
        finally:
            self._is_propagating = False


def _info(state: records.PartitionStateRecord, version: int) -> PartitionInfo:
    return PartitionInfo(
        leader=BrokerId(state.leader),
        leader_epoch=LeaderEpoch(state.leader_epoch),
        isr=tuple(BrokerId(each) for each in state.isr),
        replicas=(),
        partition_epoch=version,
        leader_recovery_state=state.leader_recovery_state,
    )
