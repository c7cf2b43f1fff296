"""An invariant that cannot fail proves nothing: for each of a cluster's, a defect in the real code that it finds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from braidlog.broker.broker import Broker
from braidlog.broker.config_changes import ConfigChangeListener
from braidlog.broker.replica_manager import ReplicaManager
from braidlog.cluster import records
from braidlog.cluster.records import PRODUCER_ID_BLOCK_SIZE, ProducerIdBlock
from braidlog.controller import topics
from braidlog.controller.active_controller import ActiveController
from braidlog.controller.plan import ControllerContext, Plan
from braidlog.core.types import TopicPartition
from braidlog.replication.partition import Partition
from braidlog.storage.dirs.log_manager import LogManager
from braidlog.storage.log.unified_log import UnifiedLog
from braidlog.testing.simulated.cluster import SimulatedCluster
from support.simulation.cluster_invariants import (
    ANSWERED_LATE,
    CONVERGES,
    NEVER_RETURN,
    NOTHING_LOST,
    STORED_FIRST,
    UNIQUE_IDS,
)
from support.simulation.cluster_workload import SETTINGS, ClusterWorkload
from support.simulation.invariants import InvariantBroken
from support.simulation.store_history import FENCED, NEVER_FALL, NO_INHERITANCE, ONE_CONTROLLER, ONE_LEADER

Patch = pytest.MonkeyPatch
MOST_SEEDS = 6
STEPS = 12


def breaches(wanted: str) -> str:
    """What the first seed says that finds the invariant broken."""
    others: list[str] = []
    for seed in range(MOST_SEEDS):
        with SimulatedCluster(seed, settings=SETTINGS) as cluster:
            try:
                cluster.run(ClusterWorkload(cluster, STEPS).run())
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

    def lead(self: Partition, leader: int, epoch: int, isr: tuple[int, ...], replicas: tuple[int, ...]) -> None:
        genuine(self, leader, max(epoch - 1, 0), isr, replicas)
        self.leader_epoch = epoch

    patch.setattr(Partition, "update_leader_and_isr", lead)
    genuine_encode = records.encode_partition_state
    turns = iter(range(10**9))
    patch.setattr(
        records, "encode_partition_state", lambda state: genuine_encode(state._replace(leader=next(turns) % 3 + 1))
    )


def lead_in_an_epoch_that_is_not_stored(patch: Patch) -> None:
    genuine: Callable[..., None] = Partition.update_leader_and_isr

    def lead(self: Partition, leader: int, epoch: int, isr: tuple[int, ...], replicas: tuple[int, ...]) -> None:
        genuine(self, leader, epoch + 1, isr, replicas)

    patch.setattr(Partition, "update_leader_and_isr", lead)


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
        (keep_the_leader_epoch, NEVER_FALL),
        (lead_in_any_epoch, ONE_LEADER),
        (lead_in_an_epoch_that_is_not_stored, STORED_FIRST),
        (answer_without_a_commit, ANSWERED_LATE),
        (allocate_ids_without_the_store, UNIQUE_IDS),
        (ignore_config_changes, CONVERGES),
        (keep_a_deleted_log, NEVER_RETURN),
        (reuse_topic_ids, NO_INHERITANCE),
        (lose_the_log, NOTHING_LOST),
    )
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_found(defect: str, monkeypatch: Patch) -> None:
    inject, invariant = DEFECTS[defect]
    inject(monkeypatch)
    assert breaches(invariant)
