"""Groups and transactions over a cluster that falls over, and whose coordinators move from disk to disk."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from typing import Final

from braidlog.client import Consumer
from braidlog.config.topic_names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from braidlog.coordinator.txn.transaction_metadata import TransactionState
from braidlog.core.types import TopicPartition
from braidlog.testing.simulated.cluster import SimulatedCluster
from braidlog.testing.simulated.program import SimulatedProgram
from braidlog.testing.simulated.simulation import SimulatedBroker
from support.simulation.cluster_workload import FAULTS, ClusterWorkload, Faults
from support.simulation.cluster_workload import SETTINGS as CLUSTER_SETTINGS
from support.simulation.coordinator_clients import ALL_GROUPS, PARTITIONS, TOPIC, CoordinatorClients
from support.simulation.coordinator_workload import SETTINGS as COORDINATOR_SETTINGS
from support.simulation.coordinator_workload import SYNCED
from support.simulation.history import PartitionTarget
from support.simulation.invariants import InvariantBroken

NO_HANGING: Final = "no transaction hangs"

# After the last fault: a transaction that was left lying is aborted after its 4 s, and markers find every leader.
ENDED_WITHIN_S: Final = 40.0
REQUEST_TIMEOUT_MS: Final = 4_000
LOOKED_FOR_S: Final = 5.0
LOOKS_EVERY_S: Final = 0.002
INTERNAL_PARTITIONS: Final = 2


def settings_for(seed: int) -> dict[str, str]:
    """In a third of the lives every record is synced before it is acknowledged, and the power may be cut."""
    internal = {
        "offsets.topic.num.partitions": str(INTERNAL_PARTITIONS),
        "transaction.state.log.num.partitions": str(INTERNAL_PARTITIONS),
        "group.consumer.migration.policy": "bidirectional",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "3000",
        "group.consumer.min.heartbeat.interval.ms": "500",
        "group.consumer.heartbeat.interval.ms": "700",
    }
    return {**CLUSTER_SETTINGS, **COORDINATOR_SETTINGS, **internal, **(SYNCED if is_synced(seed) else {})}


def is_synced(seed: int) -> bool:
    return seed % 3 == 0


class ClusterCoordinators(ClusterWorkload):
    def __init__(self, cluster: SimulatedCluster, steps: int, synced: bool, faults: Faults | None = None) -> None:
        moves: Faults = (
            (ClusterCoordinators._move_coordinator, 10),
            (ClusterCoordinators._move_between_decision_and_markers, 15),
        )
        super().__init__(cluster, steps, (*FAULTS, *moves) if faults is None else faults)
        self._synced = synced
        self._clients = CoordinatorClients(cluster.simulation, cluster.servers, ALL_GROUPS, REQUEST_TIMEOUT_MS)
        self.groups = self._clients.groups
        self.transactions = self._clients.transactions
        self._judge = SimulatedProgram(cluster.simulation, "judge")
        self.moves = 0

    # Clients

    async def _start_clients(self) -> None:
        await self._judge.call(self._clients.create_topic)
        self._tasks += self._clients.start()

    def _are_at_work(self) -> bool:
        return self.groups.commits > 0 and self.transactions.committed > 0

    def _stop_clients(self) -> None:
        super()._stop_clients()
        self._clients.running = False

    # Moves

    def _move_coordinator(self, broker: SimulatedBroker) -> None:
        topic = self._random.choice([OFFSETS_TOPIC, TRANSACTIONS_TOPIC])
        self._move(TopicPartition(topic, self._random.randrange(INTERNAL_PARTITIONS)), broker)

    def _move(self, partition: TopicPartition, to: SimulatedBroker) -> None:
        source = self._cluster.only_replica(partition)
        if source is to:
            to = self._other(to)
        sessions = [each.parts.session.session_id for each in (source, to) if each is not None and each.is_up]
        if not self._cluster.move_partition(partition, to):
            return
        self.moves += 1
        if self._random.random() < 0.5:
            # Both may be back before anybody has missed them.
            for session in sessions:
                self._cluster.zookeeper.expire(session)

    def _move_between_decision_and_markers(self, broker: SimulatedBroker) -> None:
        """Away from a coordinator that has written down how a transaction ends, and told few or none of it."""
        self._spawn(self._move_when_decided(broker), "waiting for a decision")

    async def _move_when_decided(self, broker: SimulatedBroker) -> None:
        deadline = self._simulation.loop.time() + LOOKED_FOR_S
        while self._faulty and self._simulation.loop.time() < deadline:
            for _, partition, state in self._states():
                if state in (TransactionState.PrepareCommit, TransactionState.PrepareAbort):
                    self._move(TopicPartition(TRANSACTIONS_TOPIC, partition), broker)
                    return
            await asyncio.sleep(LOOKS_EVERY_S)

    def _states(self) -> Iterator[tuple[str, int, TransactionState]]:
        """Of all transactional ids, with the partitions of their coordinators."""
        for broker in self._cluster.brokers:
            if broker.is_up:
                coordinator = broker.parts.coordinators.transactions
                for partition, shard in zip(coordinator.active_partitions(), coordinator.active_shards(), strict=True):
                    for name, transaction in shard.transactions.items():
                        yield name, partition, transaction.state

    # The judge

    async def _read_all(self) -> None:
        """Once everything has come to rest: what can be read is what was promised."""
        await self._until_quiet()
        await self._until_ended()
        visible = await self._judge.call(self._visible)
        offsets = {
            group: (await self._judge.call(partial(self._clients.committed, group, [0])))[0]
            for group in self._clients.groups_of_transactions()
        }
        self.transactions.check_visible(visible, offsets)
        for group in ALL_GROUPS:
            promised = {index: self.groups.promised(group, index) for index in range(PARTITIONS)}
            if max(promised.values()) >= 0:
                found = await self._judge.call(partial(self._clients.committed, group, range(PARTITIONS)))
                for index, offset in found.items():
                    self.groups.fetched(group, index, offset, promised[index])

    async def _until_ended(self) -> None:
        loop = self._simulation.loop
        deadline = loop.time() + ENDED_WITHIN_S
        while hanging := list(self._hanging()):
            if loop.time() >= deadline:
                raise InvariantBroken(f"{NO_HANGING}: {hanging} ({ENDED_WITHIN_S} s after the last fault)")
            await self._check_after(0.5)

    def _hanging(self) -> Iterator[str]:
        for name, _, state in self._states():
            if state not in (TransactionState.Empty, TransactionState.CompleteCommit, TransactionState.CompleteAbort):
                yield f"{name} is in state {state.name}"
        for broker in self._cluster.brokers:
            for partition in broker.parts.registry.partitions():
                log = partition.log
                if partition.leader != partition.broker_id or log is None:
                    continue
                if log.last_stable_offset < log.high_watermark:
                    yield (
                        f"{partition.topic}-{partition.index} is stable up to {log.last_stable_offset} "
                        f"of {log.high_watermark}"
                    )

    def _visible(self) -> dict[PartitionTarget, list[str]]:
        """What a program gets that reads committed records only."""
        found: dict[int, list[str]] = {target.partition: [] for target in self._clients.targets}
        partitions = [TopicPartition(TOPIC, index) for index in found]
        with closing(Consumer(bootstrap_servers=self._cluster.servers, isolation_level="read_committed")) as consumer:
            ends = consumer.end_offsets(partitions)
            consumer.assign(partitions)
            consumer.seek_to_beginning()
            deadline = self._simulation.loop.time() + ENDED_WITHIN_S
            while any(consumer.position(each) < end for each, end in ends.items()):
                if self._simulation.loop.time() >= deadline:
                    raise InvariantBroken(f"{NO_HANGING}: {ends} cannot be read")
                for record in consumer.poll(1.0):
                    found[record.partition].append((record.key or b"").decode())
        return {target: found[target.partition] for target in self._clients.targets}
