"""An invariant that cannot fail proves nothing: for each of a cluster's, a defect in the real code that it finds."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from braidlog.broker.broker import Broker
from braidlog.broker.config_changes import ConfigChangeListener
from braidlog.broker.coordinators.deleted_partitions import DeletedPartitions
from braidlog.broker.coordinators.transaction_markers import TransactionMarkerManager
from braidlog.broker.interbroker.transactions import RemoteTransactions
from braidlog.broker.metadata_cache import MetadataCache
from braidlog.broker.replica_manager import ReplicaManager
from braidlog.cluster import records
from braidlog.cluster.image import BrokerInfo
from braidlog.cluster.records import PRODUCER_ID_BLOCK_SIZE, ProducerIdBlock
from braidlog.cluster.store import ANY_VERSION, CoordinationStore
from braidlog.controller import topics
from braidlog.controller.active_controller import ActiveController, Decision
from braidlog.controller.broker_requests import requests_of
from braidlog.controller.fenced_store import FencedStore
from braidlog.controller.plan import ControllerContext, Plan
from braidlog.coordinator import runtime
from braidlog.coordinator.effects import SendMarkers
from braidlog.coordinator.group.classic.protocol import ClassicGroupProtocol
from braidlog.coordinator.loader import Loaded, LogReader
from braidlog.coordinator.shard import CoordinatorShard
from braidlog.core.compilation import is_compiled
from braidlog.core.types import TopicPartition
from braidlog.replication.partition import Partition
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.storage.producers.producer_state_manager import ProducerStateManager
from braidlog.testing.simulated.cluster import SimulatedCluster
from support.simulation import cluster_coordinators
from support.simulation.cluster_coordinators import ClusterCoordinators
from support.simulation.cluster_invariants import (
    ANSWERED_LATE,
    CONVERGES,
    NEVER_RETURN,
    NOTHING_LOST,
    STORED_FIRST,
    UNIQUE_IDS,
)
from support.simulation.cluster_workload import FAULTS, SETTINGS, ClusterWorkload, Faults
from support.simulation.invariants import InvariantBroken
from support.simulation.store_history import FENCED, NEVER_FALL, NO_INHERITANCE, ONE_CONTROLLER, ONE_LEADER

Patch = pytest.MonkeyPatch
MOST_SEEDS = 40
STEPS = 12
# How long the store takes where a defect lies in what happens meanwhile.
SLOW_S = 2.0


def breaches(wanted: str, faults: Faults) -> str:
    """What the first seed says that finds the invariant broken."""
    others: list[str] = []
    for seed in range(MOST_SEEDS):
        with SimulatedCluster(seed, settings=SETTINGS) as cluster:
            try:
                cluster.run(ClusterWorkload(cluster, STEPS, faults).run())
            except InvariantBroken as problem:
                if str(problem).startswith(wanted):
                    return str(problem)
                others.append(str(problem))
    raise AssertionError(f"no seed found that this does not hold: {wanted}; found were {others}")


def reuse_the_controller_epoch(patch: Patch) -> None:
    genuine = records.encode_controller_epoch
    patch.setattr(records, "encode_controller_epoch", lambda epoch: genuine(min(epoch, 1)))


def write_in_an_old_epoch(patch: Patch) -> None:
    genuine = records.encode_partition_state
    patch.setattr(
        records,
        "encode_partition_state",
        lambda state: genuine(state._replace(controller_epoch=max(state.controller_epoch - 1, 1))),
    )


def keep_the_leader_epoch(patch: Patch) -> None:
    genuine = records.encode_partition_state
    patch.setattr(records, "encode_partition_state", lambda state: genuine(state._replace(leader_epoch=0)))


def lead_in_any_epoch(patch: Patch) -> None:
    """Every broker believes that it leads what it hears of."""
    genuine: Callable[..., None] = Partition.update_leader_and_isr

    def lead(self: Partition, leader: int, epoch: int, *rest: object) -> None:
        genuine(self, leader, max(epoch - 1, 0), *rest)
        self.leader_epoch = epoch

    patch.setattr(Partition, "update_leader_and_isr", lead)
    genuine_encode = records.encode_partition_state
    turns = iter(range(10**9))
    patch.setattr(
        records, "encode_partition_state", lambda state: genuine_encode(state._replace(leader=next(turns) % 3 + 1))
    )


def lead_in_an_epoch_that_is_not_stored(patch: Patch) -> None:
    genuine: Callable[..., None] = Partition.update_leader_and_isr

    def lead(self: Partition, leader: int, epoch: int, *rest: object) -> None:
        genuine(self, leader, epoch + 1, *rest)

    patch.setattr(Partition, "update_leader_and_isr", lead)


def skip_the_fence(patch: Patch) -> None:
    """A controller that was replaced, and whose session lives, goes on writing."""
    genuine: Callable[..., None] = FencedStore.__init__

    def unfenced(self: FencedStore, store: CoordinationStore, epoch: int, epoch_version: int) -> None:
        genuine(self, store, epoch, ANY_VERSION)

    patch.setattr(FencedStore, "__init__", unfenced)


def tell_before_the_commit(patch: Patch) -> None:
    """Brokers hear of a change that is still on its way to the store."""
    genuine = ActiveController._commit

    async def tell_and_commit(self: ActiveController, plans: Sequence[Plan]) -> None:
        context = self.context
        for plan in plans:
            context = context.after(plan)
            for batch in plan.requests:
                self.queues.send(requests_of(context, self._broker_id, batch))
        if any(plan.steps and plan.requests for plan in plans):
            await asyncio.sleep(SLOW_S)
        await genuine(self, plans)

    patch.setattr(ActiveController, "_commit", tell_and_commit)


def answer_before_the_commit(patch: Patch) -> None:
    genuine = ActiveController._decide

    async def decide_and_answer(self: ActiveController, decisions: list[Decision]) -> Any:
        decided, rest = await genuine(self, decisions)
        for each in decided:
            each.decision.succeed(each.result)
        return decided, rest

    patch.setattr(ActiveController, "_decide", decide_and_answer)


def answer_without_a_commit(patch: Patch) -> None:
    async def pretend(self: ActiveController, plans: Sequence[Plan]) -> None:
        pass

    patch.setattr(ActiveController, "_commit", pretend)


def allocate_ids_without_the_store(patch: Patch) -> None:
    async def invent(self: Broker) -> ProducerIdBlock:
        return ProducerIdBlock(self.broker_id, 0, PRODUCER_ID_BLOCK_SIZE - 1)

    patch.setattr(Broker, "_claim_producer_ids", invent)


def ignore_config_changes(patch: Patch) -> None:
    patch.setattr(ConfigChangeListener, "_changed", lambda self, event: None)


def keep_a_deleted_log(patch: Patch) -> None:
    patch.setattr(LogManager, "delete", lambda self, key: None)


def lose_the_log(patch: Patch) -> None:
    """A new start begins with empty logs."""
    genuine: Callable[..., Any] = ReplicaManager._open

    def emptied(self: ReplicaManager, partition: Partition, is_new: bool) -> None:
        genuine(self, partition, is_new)
        if not is_new and isinstance(partition.log, UnifiedLog):
            self._require_manager().delete(TopicPartition(partition.topic, partition.index))
            genuine(self, partition, True)

    patch.setattr(ReplicaManager, "_open", emptied)


def reuse_topic_ids(patch: Patch) -> None:
    genuine = topics.create_topics

    def create(context: ControllerContext, requests: Sequence[Any], *others: Any) -> Any:
        return genuine(context, [each._replace(topic_id=(each.name.encode() * 4)[:16]) for each in requests], *others)

    patch.setattr(topics, "create_topics", create)


DEFECTS: dict[str, tuple[Callable[[Patch], None], str]] = {
    defect.__name__: (defect, invariant)
    for defect, invariant in (
        (reuse_the_controller_epoch, ONE_CONTROLLER),
        (write_in_an_old_epoch, FENCED),
        (skip_the_fence, FENCED),
        (keep_the_leader_epoch, NEVER_FALL),
        (lead_in_any_epoch, ONE_LEADER),
        (lead_in_an_epoch_that_is_not_stored, STORED_FIRST),
        (tell_before_the_commit, STORED_FIRST),
        (answer_without_a_commit, ANSWERED_LATE),
        (answer_before_the_commit, ANSWERED_LATE),
        (allocate_ids_without_the_store, UNIQUE_IDS),
        (ignore_config_changes, CONVERGES),
        (keep_a_deleted_log, NEVER_RETURN),
        (reuse_topic_ids, NO_INHERITANCE),
        (lose_the_log, NOTHING_LOST),
    )
}

# Where a defect shows in few of all lives: what has to happen.
MET_BY: dict[str, Faults] = {
    "skip_the_fence": ((ClusterWorkload._depose_controller, 1),),
    "answer_before_the_commit": ((ClusterWorkload._cut_from_zookeeper, 1),),
    # A new session reads everything.
    "ignore_config_changes": ((ClusterWorkload._cut_connections, 1),),
    "write_repeated_batches_again": ((ClusterWorkload._cut_connections, 3), (ClusterWorkload._kill, 1)),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str, monkeypatch: Patch) -> None:
    inject, invariant = DEFECTS[defect]
    inject(monkeypatch)
    assert breaches(invariant, MET_BY.get(defect, FAULTS))


# Groups and transactions


def coordinators_breach(wanted: str, faults: Faults | None) -> str:
    """As `breaches`, for the cluster whose coordinators move; `wanted` is a pattern."""
    others: list[str] = []
    for seed in range(MOST_SEEDS):
        with SimulatedCluster(seed, settings=cluster_coordinators.settings_for(seed)) as cluster:
            workload = ClusterCoordinators(cluster, STEPS, cluster_coordinators.is_synced(seed), faults)
            try:
                cluster.run(workload.run())
            except InvariantBroken as problem:
                if re.search(wanted, str(problem)):
                    return str(problem)
                others.append(str(problem))
    raise AssertionError(f"no seed found that this does not hold: {wanted}; found were {others}")


def load_no_offsets(patch: Patch) -> None:
    genuine = runtime.load

    async def load(shard: CoordinatorShard, topic: str, partition: int, logs: LogReader) -> Loaded:
        # Of this shard alone: a simulation may end in the middle of it.
        offsets: Any = getattr(shard, "offsets", None)
        if offsets is None:
            return await genuine(shard, topic, partition, logs)
        offsets.replay = lambda *record: None
        loaded = await genuine(shard, topic, partition, logs)
        del offsets.replay
        return loaded

    patch.setattr(runtime, "load", load)


def load_no_generations(patch: Patch) -> None:
    patch.setattr(ClassicGroupProtocol, "replay", lambda self, *record: None)


def count_a_refused_marker_as_written(patch: Patch) -> None:
    genuine: Callable[..., None] = TransactionMarkerManager._on_marker_written

    def written(self: TransactionMarkerManager, attempt: Any, partition: TopicPartition, error: object) -> None:
        genuine(self, attempt, partition, None)

    patch.setattr(TransactionMarkerManager, "_on_marker_written", written)


def count_a_partition_that_is_not_known_as_gone(patch: Patch) -> None:
    """And know none but those that are held here."""
    patch.setattr(DeletedPartitions, "is_gone", lambda self, partition, done: done(True))
    patch.setattr(MetadataCache, "has_partition", lambda self, topic, index: False)


def abort_elsewhere_what_is_committed(patch: Patch) -> None:
    genuine: Callable[..., Any] = RemoteTransactions._send_markers

    def send(self: RemoteTransactions, leader: BrokerInfo, markers: SendMarkers, *others: Any) -> Any:
        aborts = SendMarkers(
            markers.transactional_id,
            markers.producer_id,
            markers.producer_epoch,
            False,
            markers.partitions,
            markers.coordinator_epoch,
        )
        return genuine(self, leader, aborts, *others)

    patch.setattr(RemoteTransactions, "_send_markers", send)


def write_repeated_batches_again(patch: Patch) -> None:
    patch.setattr(ProducerStateManager, "find_duplicate", lambda self, header: None)
    patch.setattr(ProducerStateManager, "_check_sequence", lambda self, header, entry: None)


COORDINATOR_DEFECTS: dict[str, tuple[Callable[[Patch], None], str]] = {
    defect.__name__: (defect, found)
    for defect, found in (
        (load_no_offsets, "was committed, -?[0-9]+ is what is left"),
        (load_no_generations, "own it in generation|was given .* then .* in generation"),
        (count_a_refused_marker_as_written, cluster_coordinators.NO_HANGING),
        # What is left open is ended with the next transaction of its producer, whichever way that goes.
        (
            count_a_partition_that_is_not_known_as_gone,
            f"{cluster_coordinators.NO_HANGING}|is torn|was not committed, but",
        ),
        (write_repeated_batches_again, "is there twice"),
        (abort_elsewhere_what_is_committed, "is torn|committed and cannot be read"),
    )
}


@pytest.mark.parametrize("defect", COORDINATOR_DEFECTS)
def test_a_defect_of_coordinators_is_found(defect: str, monkeypatch: Patch) -> None:
    inject, found = COORDINATOR_DEFECTS[defect]
    if defect == write_repeated_batches_again.__name__ and is_compiled():
        pytest.skip("methods of a compiled class cannot be replaced; `make test` runs this file uncompiled")
    inject(monkeypatch)
    assert coordinators_breach(found, MET_BY.get(defect))
